/* order_streams.c -- data.order = "streams": rows come from virtual streams (stream.h), each of
 * which belongs to one reader. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/source.h"
#include "data/source_kind.h"
#include "data/stream.h"

#include <stdlib.h>

struct stream_order {
    struct order order;
    struct stream_rules rules;
    struct stream *streams;
    const struct data_config *data;
    int64_t row_tokens;
    bool adds_eos;
    uint64_t num_readers;
    bool is_quiet;
};

static void release_streams(struct stream_order *s)
{
    for (uint64_t i = 0; s->streams && i < s->rules.num_streams; i++)
        stream_release(&s->streams[i]);
    free(s->streams);
    s->streams = NULL;
}

static void init_streams(struct stream_order *s, uint64_t count)
{
    s->order.num_streams = s->rules.num_streams = count;
    s->streams = heap(count * sizeof *s->streams);
    for (uint64_t i = 0; i < count; i++) stream_init(&s->streams[i], &s->rules, i);
}

static void stream_order_close(struct order *o)
{
    struct stream_order *s = (struct stream_order *)o;
    release_streams(s);
    free(s);
}

static enum status stream_order_set_streams(struct order *o, uint64_t count)
{
    struct stream_order *s = (struct stream_order *)o;
    for (size_t i = 0; i < s->rules.num_sources; i++) {
        bool can;
        TRY(stream_can_partition(&s->rules, i, count, &can));
        if (!can)
            FAIL(CONFIG,
                 "%s: the run was started with %llu streams, and the source now has fewer "
                 "documents",
                 s->data->sources[i].path, (unsigned long long)count);
    }
    release_streams(s);
    init_streams(s, count);
    return STATUS_OK;
}

/* Reads past rows that the loader skips.  A single pass has one stream for all readers, so those of
 * the others, too. */
static enum status stream_order_row(struct order *o, uint64_t number, struct source_tokens *t,
                                    struct token_row *row)
{
    struct stream_order *all = (struct stream_order *)o;
    struct stream *s = &all->streams[number % all->rules.num_streams];
    uint64_t index = number / all->rules.num_streams; /* among the stream's rows */
    do {
        TRY(stream_row(s, t, row));
    } while (!s->ended && (uint64_t)s->rows <= index);
    if ((uint64_t)s->rows <= index) row->filled = 0;
    return STATUS_OK;
}

static void stream_order_save(const struct order *o, uint64_t stream, int64_t *ints)
{
    stream_save(&((const struct stream_order *)o)->streams[stream], ints);
}

/* A stream is at the position of the run, or behind it by skipped rows, which it has yet to read:
 * so a damaged position cannot make it read on for years. */
static enum status check_rows(const struct stream_order *s, uint64_t stream, int64_t rows,
                              const struct order_position *at)
{
    uint64_t V = s->rules.num_streams, has = (uint64_t)rows;
    uint64_t due = at->next_row > stream ? (at->next_row - stream - 1) / V + 1 : 0;
    if (s->rules.once || (has <= due && due - has <= at->num_skipped)) return STATUS_OK;
    FAIL(DATA, "the data position of stream %llu is damaged: at its row %lld, expected %llu",
         (unsigned long long)stream, (long long)rows, (unsigned long long)due);
}

static enum status stream_order_load(struct order *o, uint64_t stream, const int64_t *ints,
                                     const struct order_position *at)
{
    struct stream_order *s = (struct stream_order *)o;
    if (at->vocab_size && ints[STREAM_CARRY] >= at->vocab_size)
        FAIL(DATA,
             "the data position of stream %llu has token ID %lld; the vocabulary size is %lld",
             (unsigned long long)stream, (long long)ints[STREAM_CARRY], (long long)at->vocab_size);
    TRY(check_rows(s, stream, ints[STREAM_ROWS], at));
    return stream_load(&s->streams[stream], ints, at->sources);
}

static void stream_order_settings(const struct order *o, bool all, struct text *out)
{
    const struct stream_order *s = (const struct stream_order *)o;
    const struct stream_rules *r = &s->rules;
    text_addf(out, "%llu ", (unsigned long long)r->window);
    if (all) text_addf(out, "%d %d %d ", s->data->bos, s->adds_eos, r->overlap);
    text_addf(out, "%.17g", r->validation_share);
    if (r->best_fit) text_adds(out, " best_fit");
}

static int64_t stream_order_memory_bytes(const struct order *o)
{
    enum { DOCUMENT = 16 << 10, UNPACKING = 5 << 19 };
    const struct stream_order *all = (const struct stream_order *)o;
    const struct stream_rules *r = &all->rules;
    int64_t stream = 0, longest = DOCUMENT;
    bool copies = false;
    for (size_t i = 0; i < r->num_sources; i++) copies |= r->sources[i].kind->copies_text;
    for (size_t i = 0; i < r->num_sources; i++) {
        const struct source *s = &r->sources[i];
        bool rows = s->kind == &source_table && s->num_files;
        int64_t mean = rows ? (int64_t)table_mean_bytes(&s->files[0].table) : 0;
        if (mean < DOCUMENT) mean = DOCUMENT;
        if (mean > longest) longest = mean;
        stream += (int64_t)r->window * (int64_t)(sizeof(struct source_document) + 4);
        /* the window keeps documents as found; a table also decodes one row of counts */
        if (copies) stream += (int64_t)r->window * mean + UNPACKING + (rows ? mean / 4 : 0);
    }
    if (r->best_fit) stream += packing_memory_bytes(all->row_tokens);
    uint64_t own = r->once ? 1 : (r->num_streams + all->num_readers - 1) / all->num_readers;
    return (int64_t)own * (stream + longest) + (int64_t)(r->num_streams * o->cursor_ints) * 8;
}

static const struct order_kind stream_order_kind = {
    .close = stream_order_close,
    .set_streams = stream_order_set_streams,
    .row = stream_order_row,
    .save = stream_order_save,
    .load = stream_order_load,
    .settings = stream_order_settings,
    .memory_bytes = stream_order_memory_bytes,
};

/* Lowers *streams to the next power of two until each stream has a document of the source. */
static enum status lower_to_fit(struct stream_order *s, size_t source, uint64_t *streams)
{
    bool can = false;
    for (uint64_t V = *streams;; V = 1ull << (63 - __builtin_clzll(V - 1))) {
        TRY(stream_can_partition(&s->rules, source, V, &can));
        *streams = V;
        if (can) return STATUS_OK;
        if (V == 1) break;
    }
    FAIL(DATA, "%s: the source has no document%s", s->data->sources[source].path,
         s->rules.validation_share > 0 ? " on this side of the data.validation_share split" : "");
}

/* The requested number of streams, or the largest power of two for which every source has enough
 * documents.  A single pass has one stream, which all readers read and which may be empty. */
static enum status choose_num_streams(struct stream_order *s, uint64_t *count)
{
    uint64_t requested = s->rules.once ? 1 : (uint64_t)s->data->streams, V = requested;
    bool compressed = false;
    for (size_t i = 0; i < s->rules.num_sources; i++) {
        compressed |= !s->rules.sources[i].kind->seeks && s->rules.sources[i].num_files < requested;
        if (!s->rules.once) TRY(lower_to_fit(s, i, &V));
    }
    if (V < requested && !s->is_quiet)
        log_line(LOG_INFO, "data.streams lowered from %llu to %llu: a source has too few documents",
                 (unsigned long long)requested, (unsigned long long)V);
    if (compressed && V > 1 && !s->is_quiet)
        log_line(
            LOG_WARN,
            "compressed files cannot seek and there are fewer of them than the %llu streams, so "
            "each file is decompressed several times; `llamero prepare` avoids this",
            (unsigned long long)V);
    *count = V;
    return STATUS_OK;
}

enum status order_streams_open(struct order **out, const struct order_setup *setup)
{
    const struct loader_options *o = setup->options;
    struct stream_order *s = heap(sizeof *s);
    *out = &s->order;
    s->order.kind = &stream_order_kind;
    s->data = o->data;
    s->row_tokens = o->seq_len + !setup->masked;
    s->is_quiet = o->is_quiet;
    s->adds_eos = source_adds_eos(o->tokenizer, o->data->bos, o->data->eos);
    s->rules = (struct stream_rules){
        .sources = setup->sources,
        .identities = setup->identities,
        .num_sources = setup->num_sources,
        .seed = (uint64_t)(o->data->seed < 0 ? 0 : o->data->seed),
        .window = o->once ? 1 : (uint64_t)o->data->shuffle_window,
        .validation_share = o->data->validation_share,
        .held_out = o->validation,
        .once = o->once,
        .overlap = o->data->row_overlap && !setup->masked,
        .best_fit = o->data->packing == PACKING_best_fit && !o->once,
    };
    uint64_t count;
    TRY(choose_num_streams(s, &count));
    s->order.cursor_ints = STREAM_INTS + PARTITION_INTS * s->rules.num_sources;
    s->order.block = 1;
    /* a group of documents can only be found again with the settings it was packed with */
    s->order.reads_on = !s->rules.best_fit;
    s->num_readers = (uint64_t)o->num_readers;
    init_streams(s, count);
    return STATUS_OK;
}
