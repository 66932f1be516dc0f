// SPDX-License-Identifier: Apache-2.0
#include "data/source_estimate.h"

#include "base/file.h"
#include "base/log.h"
#include "data/order.h"
#include "data/source_kind.h"
#include "data/source_scan.h"

#include <math.h>

enum { SAMPLE_BYTES = 1 << 20 };

static enum status count_tokens(void *taker, const struct source_document *d,
                                struct source_tokens *t, const struct token_list *ids)
{
    (void)d, (void)t;
    *(uint64_t *)taker += ids->count;
    return STATUS_OK;
}

/* All tokens of .bin and .npy files; 0: of another kind. */
static double known_tokens(const struct source *s)
{
    double tokens = 0;
    for (size_t i = 0; i < s->num_files; i++) {
        const struct source_file *f = &s->files[i];
        if (s->kind == &source_megatron)
            tokens += (double)f->tokens.bin.size / f->tokens.token_bytes;
        if (s->kind == &source_npy || s->kind == &source_raw_tokens)
            tokens +=
                (double)f->array.columns * (f->array.num_axes == 1 ? 1 : (double)f->array.rows);
    }
    return tokens;
}

/* What the whole source has of what source_scan.extent counts. */
static enum status find_extent(const struct source *s, double *extent)
{
    *extent = (double)s->num_positions;
    for (size_t i = 0; i < s->num_files && !s->kind->seeks; i++) {
        uint64_t size;
        TRY(file_size(s->files[i].path, &size));
        *extent += (double)size;
    }
    return STATUS_OK;
}

enum status source_estimate_run(struct source_estimate *e, const struct source *s,
                                const struct source_tokens *t)
{
    uint64_t tokens = 0;
    double extent, known = known_tokens(s);
    struct source_scan scan = {.source = s,
                               .tokenizer = t->tokenizer,
                               .vocab_size = t->vocab_size,
                               .bos = t->bos,
                               .eos = t->eos,
                               .max_bytes = e->max_bytes ? e->max_bytes : SAMPLE_BYTES,
                               .is_quick = true,
                               .threads = 1,
                               .take = count_tokens,
                               .taker = &tokens};
    enum status st = STATUS_OK;
    TRY_OUT(source_scan_run(&scan));
    TRY_OUT(find_extent(s, &extent));
    double read = (double)scan.bad.num_read;
    if (scan.damage.len) log_line(LOG_WARN, "%s", scan.damage.data);
    e->documents = e->tokens_per_document = NAN;
    if (read < 1 || !scan.extent) goto out;
    e->documents = scan.is_whole ? read : extent * read / (double)scan.extent;
    e->tokens_per_document = known > 0 ? known / e->documents : (double)tokens / read;
out:
    source_scan_release(&scan);
    return st;
}

enum status source_estimate_megatron(struct source_estimate *e, const struct source *s,
                                     const char *split)
{
    uint64_t begin, end, tokens = 0;
    TRY(order_megatron_range(s, split, BLEND_TRAIN, &begin, &end));
    for (uint64_t i = begin; i < end; i++) tokens += source_sequence_length(s, i);
    TRY(source_check(s));
    e->documents = (double)(end - begin);
    e->tokens_per_document = (double)tokens / e->documents;
    return STATUS_OK;
}
