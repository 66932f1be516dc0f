/* order_streams.c -- data.order = "streams": lanes are virtual streams, which shares own. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "data/order.h"
#include "data/stream.h"

#include <stdlib.h>

struct streams {
    struct order order;
    struct stream_rules rules;
    struct stream *streams;
    const struct data_config *data;
    uint64_t own; /* streams this share reads */
};

static void streams_close(struct order *o)
{
    struct streams *s = (struct streams *)o;
    for (uint64_t i = 0; s->streams && i < s->rules.num_streams; i++)
        stream_release(&s->streams[i]);
    free(s->streams);
    free(s);
}

/* Rows of a single pass are all in one stream: those of other shares are passed over. */
static enum status streams_row(struct order *o, uint64_t number, struct source_tokens *t, int need,
                               int32_t *ids, unsigned char *begins, int *filled)
{
    struct streams *all = (struct streams *)o;
    struct stream *s = &all->streams[number % all->rules.num_streams];
    bool once = all->rules.once;
    do {
        TRY(stream_row(s, t, need, ids, begins, filled));
    } while (once && *filled == need && (uint64_t)s->rows <= number);
    if (once && (uint64_t)s->rows <= number) *filled = 0;
    return STATUS_OK;
}

static void streams_save(const struct order *o, uint64_t lane, int64_t *ints)
{
    stream_save(&((const struct streams *)o)->streams[lane], ints);
}

static enum status streams_load(struct order *o, uint64_t lane, const int64_t *ints,
                                int64_t vocab_size)
{
    if (vocab_size && ints[4] >= vocab_size)
        FAIL(DATA, "the data cursor of stream %llu holds the id %lld; the vocabulary has %lld",
             (unsigned long long)lane, (long long)ints[4], (long long)vocab_size);
    return stream_load(&((struct streams *)o)->streams[lane], ints);
}

static void streams_settings(const struct order *o, struct text *out)
{
    const struct streams *s = (const struct streams *)o;
    const struct stream_rules *r = &s->rules;
    text_addf(out, "%llu %d %d %d %.17g", (unsigned long long)r->window, s->data->bos, s->data->eos,
              r->overlap, r->validation_share);
}

static int64_t streams_memory_bytes(const struct order *o)
{
    enum { DOCUMENT = 16 << 10, UNPACKING = 5 << 19 };
    const struct streams *all = (const struct streams *)o;
    const struct stream_rules *r = &all->rules;
    int64_t stream = 0, longest = DOCUMENT;
    bool packed = false;
    for (size_t i = 0; i < r->num_sources; i++)
        packed |= r->sources[i].kind == SOURCE_PACKED || r->sources[i].kind == SOURCE_ROWS;
    for (size_t i = 0; i < r->num_sources; i++) {
        const struct source *s = &r->sources[i];
        bool rows = s->kind == SOURCE_ROWS && s->num_files;
        int64_t mean = rows ? (int64_t)table_mean_bytes(&s->files[0].table) : 0;
        if (mean < DOCUMENT) mean = DOCUMENT;
        if (mean > longest) longest = mean;
        stream += (int64_t)r->window * (int64_t)(sizeof(struct found) + 4);
        /* each kept as it was found, and one more as counts */
        if (packed) stream += (int64_t)r->window * mean + UNPACKING + (rows ? mean / 4 : 0);
    }
    return (int64_t)all->own * (stream + longest) + (int64_t)(r->num_streams * o->ints) * 8;
}

static const struct order_kind streams_kind = {
    .close = streams_close,
    .row = streams_row,
    .save = streams_save,
    .load = streams_load,
    .settings = streams_settings,
    .memory_bytes = streams_memory_bytes,
};

/* Fewer streams, until each has a document of the source. */
static enum status fit_streams(struct streams *s, size_t source, uint64_t *streams)
{
    bool can = false;
    for (uint64_t V = *streams;; V = 1ull << (63 - __builtin_clzll(V - 1))) {
        TRY(stream_can_share(&s->rules, source, V, &can));
        *streams = V;
        if (can) return STATUS_OK;
        if (V == 1) break;
    }
    FAIL(DATA, "%s: there is no document in it%s", s->data->sources[source].path,
         s->rules.validation_share > 0 ? ", but for what data.validation_share parts" : "");
}

/* As many streams as asked for, or the largest power of two that every source has documents for.
 * A single pass has one, which all shares read, and it may be empty. */
static enum status choose_streams(struct streams *s, int num_shares)
{
    uint64_t wanted = s->rules.once ? 1 : (uint64_t)s->data->streams, V = wanted;
    bool packed = false;
    for (size_t i = 0; i < s->rules.num_sources; i++) {
        packed |=
            s->rules.sources[i].kind == SOURCE_PACKED && s->rules.sources[i].num_files < wanted;
        if (!s->rules.once) TRY(fit_streams(s, i, &V));
    }
    if (V < wanted)
        log_line(LOG_INFO,
                 "data.streams is lowered from %llu to %llu: a source has too few "
                 "documents",
                 (unsigned long long)wanted, (unsigned long long)V);
    if (packed && V > 1)
        log_line(LOG_WARN,
                 "compressed files cannot be sought in, and there are fewer of them than the "
                 "%llu streams: each is unpacked several times; `llamero prepare` makes it fast",
                 (unsigned long long)V);
    if (!s->rules.once && V % (uint64_t)num_shares)
        FAIL(CONFIG, "data.streams: %llu streams are not shared out evenly by %d ranks",
             (unsigned long long)V, num_shares);
    s->rules.num_streams = V;
    s->own = s->rules.once ? 1 : V / (uint64_t)num_shares;
    return STATUS_OK;
}

enum status order_streams_open(struct order **out, const struct order_setup *setup)
{
    const struct loader_options *o = setup->options;
    struct streams *s = heap(sizeof *s);
    *out = &s->order;
    s->order.kind = &streams_kind;
    s->data = o->data;
    s->rules = (struct stream_rules){
        .sources = setup->sources,
        .num_sources = setup->num_sources,
        .seed = (uint64_t)(o->data->seed < 0 ? 0 : o->data->seed),
        .window = o->once ? 1 : (uint64_t)o->data->shuffle_window,
        .validation_share = o->data->validation_share,
        .held_out = o->validation,
        .once = o->once,
        .overlap = o->data->row_overlap && !setup->masked,
    };
    TRY(choose_streams(s, o->num_shares));
    s->order.lanes = s->rules.num_streams;
    s->order.ints = STREAM_INTS + SHARE_INTS * s->rules.num_sources;
    s->order.block = 1;
    s->streams = heap(s->rules.num_streams * sizeof *s->streams);
    for (uint64_t i = 0; i < s->rules.num_streams; i++) stream_init(&s->streams[i], &s->rules, i);
    return STATUS_OK;
}
