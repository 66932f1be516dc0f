/* source_megatron.c -- Megatron-LM .bin/.idx pairs: the non-empty documents of the index, at their
 * numbers; and for data.order = "megatron" the sequences of a single pair. */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "data/source.h"
#include "data/source_kind.h"

static enum status pair_open(struct source *s, struct source_file *f, uint64_t *size)
{
    const struct file_map *idx = &f->tokens.idx;
    TRY(megatron_open(&f->tokens, f->path));
    s->num_positions += f->tokens.num_documents;
    s->fingerprint = checksum_crc32c(s->fingerprint, idx->data, idx->size);
    s->holds_ids = true;
    *size = f->tokens.bin.size;
    return STATUS_OK;
}

static enum status pair_check(const struct source_file *f)
{
    TRY(file_map_check(&f->tokens.idx));
    return file_map_check(&f->tokens.bin);
}

static void pair_close(struct source_file *f) { megatron_close(&f->tokens); }

static enum status pair_find(const struct source *s, struct source_reader *r,
                             struct source_range *c, struct source_document *d, bool *none)
{
    (void)r;
    for (*none = true; *none && c->position < c->end; ++c->position) {
        size_t i = source_file_at(s, c->position);
        uint64_t n = c->position - s->files[i].first_position;
        uint64_t len = megatron_document_length(&s->files[i].tokens, n);
        *d = (struct source_document){c->position, i, n, len, d->text, false};
        *none = !len;
    }
    return STATUS_OK;
}

static enum status pair_ids(const struct source *s, const struct source_document *d,
                            const struct source_tokens *t, int32_t *ids)
{
    return megatron_read_document(&s->files[d->file].tokens, d->at, d->len, t->vocab_size, ids);
}

static uint64_t pair_num_sequences(const struct source *s)
{
    return s->num_files == 1 ? s->files->tokens.num_sequences : 0;
}

static uint64_t pair_sequence_length(const struct source *s, uint64_t sequence)
{
    return megatron_sequence_length(&s->files->tokens, sequence);
}

static enum status pair_read_sequence(const struct source *s, const struct source_span *span,
                                      const struct source_tokens *t, int32_t *ids)
{
    return megatron_read_sequence(&s->files->tokens,
                                  (struct megatron_range){span->sequence, span->from, span->count},
                                  t->vocab_size, ids);
}

const struct source_kind source_megatron = {
    .suffixes = {".bin", ".idx"},
    .unit = "document",
    .seeks = true,
    .open = pair_open,
    .check = pair_check,
    .close = pair_close,
    .find = pair_find,
    .ids = pair_ids,
    .num_sequences = pair_num_sequences,
    .sequence_length = pair_sequence_length,
    .read_sequence = pair_read_sequence,
};
