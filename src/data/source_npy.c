/* source_npy.c -- arrays of token IDs, in .npy files and in .bin files without an index: a document
 * per row of a 2-D array, or per 16,384 tokens of a 1-D array, at its number. */
// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"
#include "data/source_kind.h"
#include "formats/raw_tokens.h"

enum { DOCUMENT_TOKENS = 1 << 14 }; /* of a 1-D array */

static enum status add_array(struct source *s, const struct npy *n, uint64_t *size)
{
    if (n->num_axes == 1)
        s->num_positions += n->columns / DOCUMENT_TOKENS + (n->columns % DOCUMENT_TOKENS != 0);
    else if (n->columns)
        s->num_positions += n->rows;
    s->holds_ids = true;
    *size = n->map.size;
    return STATUS_OK;
}

static enum status array_open(struct source *s, struct source_file *f, uint64_t *size)
{
    TRY(npy_open(&f->array, f->path));
    return add_array(s, &f->array, size);
}

static enum status raw_open(struct source *s, struct source_file *f, uint64_t *size)
{
    TRY(raw_tokens_open(&f->array, f->path));
    return add_array(s, &f->array, size);
}

static enum status array_check(const struct source_file *f)
{
    return file_map_check(&f->array.map);
}

static void array_close(struct source_file *f) { npy_close(&f->array); }

static enum status array_find(const struct source *s, struct source_reader *r,
                              struct source_range *c, struct source_document *d, bool *none)
{
    (void)r;
    *none = c->position >= c->end;
    if (*none) return STATUS_OK;
    size_t i = source_file_at(s, c->position);
    const struct npy *n = &s->files[i].array;
    uint64_t row = c->position - s->files[i].first_position, len = n->columns;
    if (n->num_axes == 1) {
        len -= row * DOCUMENT_TOKENS;
        if (len > DOCUMENT_TOKENS) len = DOCUMENT_TOKENS;
    }
    *d = (struct source_document){c->position, i, row, len, d->text, false};
    ++c->position;
    return STATUS_OK;
}

static enum status array_ids(const struct source *s, const struct source_document *d,
                             const struct source_tokens *t, int32_t *ids)
{
    const struct npy *n = &s->files[d->file].array;
    uint64_t each = n->num_axes == 1 ? DOCUMENT_TOKENS : n->columns;
    return npy_read(n, d->at * each, d->len, t->vocab_size, ids);
}

const struct source_kind source_npy = {
    .suffixes = {".npy"},
    .unit = "row",
    .seeks = true,
    .open = array_open,
    .check = array_check,
    .close = array_close,
    .find = array_find,
    .ids = array_ids,
};

const struct source_kind source_raw_tokens = {
    .unit = "chunk",
    .seeks = true,
    .open = raw_open,
    .check = array_check,
    .close = array_close,
    .find = array_find,
    .ids = array_ids,
};
