/* order_megatron.c -- data.order = "megatron": row g is sample g of Megatron-LM's GPTDataset or
 * BlendedDataset, so the number of the next row is the whole cursor. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "data/blend.h"
#include "data/cyclic.h"
#include "data/gpt_index.h"
#include "data/loader.h"
#include "data/megatron_args.h"
#include "data/order.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

struct megatron_order {
    struct order order;
    struct order_setup setup;
    uint64_t num_requested;  /* rows the order is built for; 0: one epoch */
    struct gpt_index *index; /* per source */
    struct blend blend;      /* empty for a single source without weights */
    bool by_weights;
    uint64_t rows;
    struct cyclic cyclic; /* samples 0: rows are samples in their order */
};

static void megatron_order_close(struct order *o)
{
    struct megatron_order *s = (struct megatron_order *)o;
    for (size_t i = 0; i < s->setup.num_sources; i++) gpt_index_release(&s->index[i]);
    blend_release(&s->blend);
    cyclic_release(&s->cyclic);
    free(s->index);
    free(s);
}

/* Reads a part of a sequence.  Samples depend on the lengths of sequences, so a bad one keeps its
 * place: zeros without loss stand for its tokens. */
static enum status read_span(const struct source *s, const struct source_span *span,
                             struct source_tokens *t, struct token_row to)
{
    enum status st = source_read_sequence(s, span, t, to.ids);
    if (st == STATUS_RECORD && t->bad) {
        memset(to.ids, 0, span->count * sizeof *to.ids);
        memset(to.begins, TOKEN_SKIPPED, span->count);
        st = source_skip_sequence(s, span, t);
    }
    TRY(st);
    return STATUS_OK;
}

/* The .idx no longer has the lengths that the order was built from. */
static enum status fail_changed(const struct source *s)
{
    TRY(source_check(s));
    FAIL(DATA, "%s: the index has changed since it was opened", s->config->path);
}

static enum status megatron_order_row(struct order *o, uint64_t number, struct source_tokens *t,
                                      struct token_row *row)
{
    struct megatron_order *s = (struct megatron_order *)o;
    row->filled = 0;
    if (s->cyclic.samples) number = cyclic_at(&s->cyclic, number);
    if (number >= s->rows && s->setup.options->once) return STATUS_OK;
    if (number >= s->rows)
        FAIL(DATA, "row %llu is past the end of an order of %llu samples: increase data.samples",
             (unsigned long long)number, (unsigned long long)s->rows);
    bool mixed = s->blend.size > 0;
    size_t i = mixed ? s->blend.source[number] : 0;
    const struct gpt_index *x = &s->index[i];
    const struct source *from = &s->setup.sources[i];
    struct gpt_sample at = gpt_index_at(x, mixed ? s->blend.sample[number] : number);
    memset(row->begins, 0, (size_t)row->need);
    if (row->spans) row->spans->count = 0;
    for (int n = 0; n < row->need; at.document++, at.offset = 0) {
        if (at.document >= x->num_documents) return fail_changed(from);
        uint64_t sequence = x->document_index[at.document], room = (uint64_t)(row->need - n);
        uint64_t length = source_sequence_length(from, sequence), left = length - at.offset;
        if (at.offset > length) return fail_changed(from);
        struct source_span span = {sequence, at.offset, left < room ? left : room};
        TRY(read_span(from, &span, t,
                      (struct token_row){.ids = row->ids + n, .begins = row->begins + n}));
        if (row->spans && span.count)
            token_spans_add(row->spans,
                            &(struct token_span){.begin = n,
                                                 .count = (int)span.count,
                                                 .source = i,
                                                 .at = sequence,
                                                 .first = at.offset,
                                                 .is_skipped = row->begins[n] & TOKEN_SKIPPED});
        if (span.count && !at.offset) row->begins[n] |= TOKEN_BEGINS;
        n += (int)span.count;
    }
    row->filled = row->need;
    return STATUS_OK;
}

static void megatron_order_save(const struct order *o, uint64_t stream, int64_t *cursor_ints)
{
    BUG_IF(o->cursor_ints || stream || !cursor_ints);
}

static enum status megatron_order_load(struct order *o, uint64_t stream, const int64_t *cursor_ints,
                                       const struct order_position *at)
{
    BUG_IF(o->cursor_ints || stream || !cursor_ints || at->vocab_size < 0);
    return STATUS_OK;
}

/* Whether an order for `samples` has the same rows as this one as far as both go.  A longer blend
 * begins with the shorter; an index depends on how much of its last epoch is used; the sampler
 * "cyclic" permutes all samples. */
static bool has_order_of(const struct megatron_order *s, uint64_t samples)
{
    size_t n = s->setup.num_sources;
    bool same = true;
    if (samples == s->num_requested) return true;
    if (s->blend.size && !s->by_weights) { /* of one epoch */
        uint64_t size = 0;
        for (size_t i = 0; i < n; i++) size += s->index[i].num_samples;
        return !s->cyclic.samples || s->rows == (samples < size ? samples : size);
    }
    if (s->by_weights && s->cyclic.samples) return false;
    double *weights = heap(n * sizeof *weights);
    for (size_t i = 0; i < n; i++) weights[i] = s->setup.sources[i].config->weight;
    blend_normalize(weights, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t target = samples;
        if (s->by_weights) target = blend_add_margin(blend_target(samples, weights[i]));
        same &= gpt_index_serves(&s->index[i], target);
    }
    free(weights);
    return same;
}

/* A longer run cannot keep the order, so that this is no error. */
static void warn_of_samples(const struct megatron_order *s, const struct json *args)
{
    const struct loader_options *o = s->setup.options;
    int64_t samples;
    if (o->reader || o->is_quiet || o->once ||
        !json_as_int(json_get(args, "samples"), 1, JSON_MAX_INT, &samples) ||
        has_order_of(s, (uint64_t)samples))
        return;
    log_line(LOG_WARN,
             "the checkpoint's run built its data order for %lld samples; the order for %llu "
             "differs, so rows may repeat or be skipped: set data.samples = %lld to keep the order "
             "of that run",
             (long long)samples, (unsigned long long)s->num_requested, (long long)samples);
}

static enum status megatron_order_check_consumed(const struct order *o, uint64_t samples,
                                                 const struct json *args)
{
    const struct megatron_order *s = (const struct megatron_order *)o;
    const struct cyclic *c = &s->cyclic;
    TRY(megatron_args_check(args, &(struct megatron_settings){&s->setup, s->by_weights, c}));
    if (!c->samples && samples > s->rows)
        FAIL(CONFIG,
             "the checkpoint's run has read %llu samples, but the order has %llu: set data.samples "
             "to its --train-samples, or to its --train-iters times the batch size",
             (unsigned long long)samples, (unsigned long long)s->rows);
    if (c->samples && !cyclic_begins_step(c, samples))
        FAIL(CONFIG,
             "the checkpoint's run has read %llu samples, which do not end with a microbatch of "
             "%llu rows on each of %llu ranks: set data.sampler_rows and data.sampler_ranks to "
             "those of that run",
             (unsigned long long)samples, (unsigned long long)c->rows,
             (unsigned long long)c->ranks);
    warn_of_samples(s, args);
    return STATUS_OK;
}

static void megatron_order_settings(const struct order *o, bool all, struct text *out)
{
    (void)all;
    const struct megatron_order *s = (const struct megatron_order *)o;
    const struct data_config *d = s->setup.options->data;
    text_addf(out, "megatron %s %s %llu", d->split, data_blend_word(d->blend),
              (unsigned long long)s->num_requested);
    if (s->cyclic.samples)
        text_addf(out, " %s %llu %llu", data_sampler_word(d->sampler),
                  (unsigned long long)s->cyclic.ranks, (unsigned long long)s->cyclic.rows);
    if (s->cyclic.samples && d->sampler_batch)
        text_addf(out, " batch %lld", (long long)d->sampler_batch);
}

static int64_t megatron_order_memory_bytes(const struct order *o)
{
    const struct megatron_order *s = (const struct megatron_order *)o;
    size_t each = sizeof *s->blend.source + sizeof *s->blend.sample;
    uint64_t bytes = s->blend.size * each + s->cyclic.count * sizeof *s->cyclic.permutation;
    for (size_t i = 0; i < s->setup.num_sources; i++) bytes += gpt_index_bytes(&s->index[i]);
    return (int64_t)bytes;
}

static const struct order_kind megatron_order_kind = {
    .close = megatron_order_close,
    .row = megatron_order_row,
    .save = megatron_order_save,
    .load = megatron_order_load,
    .check_consumed = megatron_order_check_consumed,
    .settings = megatron_order_settings,
    .memory_bytes = megatron_order_memory_bytes,
};

enum status order_megatron_range(const struct source *s, const char *split, enum blend_part part,
                                 uint64_t *begin, uint64_t *end)
{
    uint64_t all = source_num_sequences(s);
    if (!all)
        FAIL(CONFIG,
             "%s: data.order = \"megatron\" requires a .bin/.idx prefix or \"mock\" in each "
             "source; `llamero prepare` creates such files from text",
             s->config->path);
    if (all > INT32_MAX)
        FAIL(UNSUPPORTED, "%s: %llu sequences exceed the 31-bit sequence numbers of Megatron",
             s->config->path, (unsigned long long)all);
    return blend_split_range(s->kind == &source_mock ? "1,1,1" : split, part, all, begin, end);
}

/* Builds the index of the split of source i that this loader reads. */
static enum status build_index(struct megatron_order *s, size_t i, uint64_t num_requested)
{
    const struct loader_options *o = s->setup.options;
    const struct source *from = &s->setup.sources[i];
    uint64_t begin, end;
    TRY(order_megatron_range(from, o->data->split, o->validation ? BLEND_VALID : BLEND_TRAIN,
                             &begin, &end));
    int32_t *lengths = heap((end - begin) * sizeof *lengths);
    for (uint64_t d = begin; d < end; d++)
        lengths[d - begin] = (int32_t)source_sequence_length(from, d);
    enum status st = source_check(from);
    const struct gpt_index_spec spec = {
        .lengths = lengths,
        .count = end - begin,
        .first = begin,
        .min_samples = num_requested,
        .seq_len = (uint64_t)o->seq_len,
        .seed = (uint32_t)(o->data->seed < 0 ? 0 : o->data->seed),
    };
    if (!st) {
        st = gpt_index_build(&s->index[i], &spec);
        if (st && from->kind == &source_mock) /* its split is another */
            status_prefix(st, "%s", from->config->path);
        else if (st)
            status_prefix(st, "%s, %s part of data.split = \"%s\"", from->config->path,
                          o->validation ? "validation" : "training", o->data->split);
    }
    free(lengths);
    return st;
}

/* The margin can be too small: a blend must not exceed the index of any source. */
static enum status check_blend(const struct megatron_order *s)
{
    for (uint64_t g = 0; g < s->blend.size; g++) {
        const size_t i = s->blend.source[g];
        if (s->blend.sample[g] >= s->index[i].num_samples)
            FAIL(DATA,
                 "%s: the blend needs more than the %llu samples that its index was built for",
                 s->setup.sources[i].config->path, (unsigned long long)s->index[i].num_samples);
    }
    return STATUS_OK;
}

static enum status blend_by_weights(struct megatron_order *s, double *weights)
{
    size_t n = s->setup.num_sources;
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        const struct source_config *c = s->setup.sources[i].config;
        if (!(c->weight > 0))
            FAIL(CONFIG, "%s: weight = %g: must be greater than 0", c->path, c->weight);
        weights[i] = c->weight;
    }
    blend_normalize(weights, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t target = blend_target(s->num_requested, weights[i]);
        TRY(build_index(s, i, blend_add_margin(target)));
        size += target;
    }
    blend_normalize(weights, n); /* again, as Megatron does: the last bits may change */
    return blend_weighted(&s->blend, weights, n, size);
}

/* One epoch of each source, weighted by its number of samples. */
static enum status blend_by_lengths(struct megatron_order *s, double *weights)
{
    size_t n = s->setup.num_sources;
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(build_index(s, i, 0));
        size += s->index[i].num_samples;
        weights[i] = (double)s->index[i].num_samples;
    }
    if (s->num_requested) {
        blend_normalize(weights, n);
        return blend_weighted(&s->blend, weights, n,
                              s->num_requested < size ? s->num_requested : size);
    }
    uint64_t *sizes = heap(n * sizeof *sizes);
    for (size_t i = 0; i < n; i++) sizes[i] = s->index[i].num_samples;
    enum status st = blend_exhaustive(&s->blend, sizes, n);
    free(sizes);
    return st;
}

static enum status build_indices(struct megatron_order *s)
{
    enum data_blend blend = s->setup.options->data->blend;
    size_t n = s->setup.num_sources;
    bool by_weights =
        s->num_requested && (blend == BLEND_BY_weights || (n > 1 && blend == BLEND_BY_auto));
    if (n == 1 && !by_weights) {
        TRY(build_index(s, 0, s->num_requested));
        s->rows = s->index[0].num_samples;
        return STATUS_OK;
    }
    if (n > BLEND_SOURCES)
        FAIL(CONFIG, "%zu sources exceed Megatron's limit of %d in a blend", n, BLEND_SOURCES);
    s->by_weights = by_weights;
    double *weights = heap(n * sizeof *weights);
    enum status st = by_weights ? blend_by_weights(s, weights) : blend_by_lengths(s, weights);
    free(weights);
    TRY(st);
    s->rows = s->blend.size;
    return check_blend(s);
}

/* The epochs are shuffled together, so none begins at a step. */
static void log_epochs(const struct megatron_order *s)
{
    for (size_t i = 0; i < s->setup.num_sources; i++)
        if (s->index[i].epochs > 1)
            log_line(LOG_INFO, "%s: the order is built from %llu epochs: its documents repeat",
                     data_config_label(s->setup.sources[i].config),
                     (unsigned long long)s->index[i].epochs);
}

enum status order_megatron_open(struct order **out, const struct order_setup *setup)
{
    const struct loader_options *o = setup->options;
    struct megatron_order *s = heap(sizeof *s);
    *out = &s->order;
    s->order = (struct order){.kind = &megatron_order_kind, .num_streams = 1, .block = 1};
    if (o->block > 1) s->order.block = (uint64_t)o->block;
    s->setup = *setup;
    s->index = heap(setup->num_sources * sizeof *s->index);
    if (o->data->seed > UINT32_MAX)
        FAIL(CONFIG, "data.seed = %lld: must be less than 2^32 for data.order = \"megatron\"",
             (long long)o->data->seed);
    int64_t num_requested = o->data->samples ? o->data->samples : o->run_rows;
    if (!o->once) s->num_requested = num_requested > 0 ? (uint64_t)num_requested : 1;
    TRY(build_indices(s));
    if (!o->reader && !o->is_quiet && !o->validation) log_epochs(s);
    if (o->data->sampler == SAMPLER_single || o->validation || o->once) return STATUS_OK;
    int64_t ranks = o->data->sampler_ranks, rows = o->data->sampler_rows;
    s->cyclic = (struct cyclic){.samples = s->rows,
                                .ranks = ranks ? (uint64_t)ranks : (uint64_t)o->num_readers,
                                .rows = rows ? (uint64_t)rows : s->order.block,
                                .batch = (uint64_t)o->data->sampler_batch,
                                .sharded = o->data->sampler == SAMPLER_cyclic};
    return cyclic_init(&s->cyclic);
}
