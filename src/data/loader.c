/* loader.c -- rows of all streams in their global order, read ahead by a thread, masked, counted.
 */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/data.h"
#include "data/order.h"
#include "ops/cross_entropy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row, and its lane's cursor behind it. */
struct row {
    int32_t *ids, *labels, *start, *end;
    int64_t valid, bytes;
    int64_t *cursor;
    bool empty; /* a single pass is over */
};

struct loader {
    struct loader_options options;
    struct source *sources;
    size_t num_sources;
    struct order *order;
    uint64_t seed;
    struct source_tokens tokens;
    bool masked;
    int32_t mask_id;
    int32_t silent_id;       /* no loss where it is the input; -1: none */
    unsigned char *bytes_of; /* of each id's text; NULL without a tokenizer */
    int32_t *raw;            /* seq_len + 1 tokens of the row being made */
    unsigned char *begins;
    int64_t *cursors;    /* of all lanes, as of the rows handed out */
    uint64_t first;      /* row of all shares where these begin */
    uint64_t handed_out; /* rows since, of this share */
    /* the ring: rows made - rows handed out <= num_slots */
    struct row *slots;
    uint64_t num_slots, made;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, stop;
    struct failure failure;
};

static void row_init(struct row *r, int T, size_t cursor_ints)
{
    size_t bytes = (size_t)T * sizeof(int32_t);
    r->ids = heap(bytes), r->labels = heap(bytes);
    r->start = heap(bytes), r->end = heap(bytes);
    r->cursor = heap(cursor_ints * sizeof *r->cursor);
}

static void row_release(struct row *r)
{
    free(r->ids), free(r->labels), free(r->start), free(r->end), free(r->cursor);
}

/* start and end of each token's document within the row. */
static void mark_documents(const struct loader *l, int filled, struct row *r)
{
    int T = l->options.seq_len, start = 0;
    for (int i = 0; i <= T; i++) {
        bool begins = i == T || (i < filled ? l->begins[i] : i == filled);
        if (!begins || i == 0) continue;
        for (int j = start; j < i; j++) r->start[j] = start, r->end[j] = i;
        start = i;
    }
}

static void label_masked(const struct loader *l, uint64_t number, int filled, struct row *r)
{
    const struct objective_config *o = l->options.objective;
    for (int i = 0; i < l->options.seq_len; i++) {
        bool masked =
            i < filled && rng_uniform(l->seed, RNG_MASK, number, (uint64_t)i) < o->mask_probability;
        r->labels[i] = masked ? l->raw[i] : LABEL_IGNORED;
        r->ids[i] = masked ? l->mask_id : i < filled ? l->raw[i] : 0;
    }
}

static void label_next(const struct loader *l, int filled, struct row *r)
{
    for (int i = 0; i < l->options.seq_len; i++) {
        r->ids[i] = i < filled ? l->raw[i] : 0;
        bool counts = i + 1 < filled && l->raw[i] != l->silent_id;
        r->labels[i] = counts ? l->raw[i + 1] : LABEL_IGNORED;
    }
}

/* The number of this share's row k: shares take blocks in turn. */
static uint64_t row_number(const struct loader *l, uint64_t k)
{
    uint64_t share = (uint64_t)l->options.share, shares = (uint64_t)l->options.num_shares;
    uint64_t block = l->order->block;
    return l->first + (k / block * shares + share) * block + k % block;
}

static enum status make_row(struct loader *l, uint64_t k, struct row *r)
{
    uint64_t number = row_number(l, k);
    struct order *o = l->order;
    int64_t most = l->options.most_rows;
    int filled = 0, need = l->options.seq_len + !l->masked;
    if (!most || number < (uint64_t)most)
        TRY(o->kind->row(o, number, &l->tokens, need, l->raw, l->begins, &filled));
    /* what overlaps only is no row */
    r->empty = filled <= (!l->masked);
    if (l->masked)
        label_masked(l, number, filled, r);
    else
        label_next(l, filled, r);
    mark_documents(l, filled, r);
    r->valid = r->bytes = 0;
    for (int i = 0; i < l->options.seq_len; i++) {
        if (r->labels[i] == LABEL_IGNORED) continue;
        r->valid++;
        if (l->bytes_of) r->bytes += l->bytes_of[r->labels[i]];
    }
    o->kind->save(o, number % o->lanes, r->cursor);
    return STATUS_OK;
}

static void *read_ahead(void *context)
{
    struct loader *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->failure.status) {
        if (l->made - l->handed_out >= l->num_slots) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        uint64_t k = l->made;
        pthread_mutex_unlock(&l->lock);
        enum status st = make_row(l, k, &l->slots[k % l->num_slots]);
        pthread_mutex_lock(&l->lock);
        if (!failure_keep(&l->failure, st)) l->made++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static enum status start_thread(struct loader *l)
{
    if (!l->options.rows_ahead || l->running) return STATUS_OK;
    l->stop = false;
    TRY(thread_start(&l->thread, read_ahead, l));
    l->running = true;
    return STATUS_OK;
}

static void stop_thread(struct loader *l)
{
    if (!l->running) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = false;
}

/* Row k of this share, waiting for the thread where there is one. */
static enum status wait_row(struct loader *l, uint64_t k, struct row **row)
{
    *row = &l->slots[k % l->num_slots];
    if (!l->running) {
        TRY(make_row(l, k, *row));
        l->made = k + 1;
        return STATUS_OK;
    }
    pthread_mutex_lock(&l->lock);
    while (l->made <= k && !l->failure.status) pthread_cond_wait(&l->changed, &l->lock);
    bool failed = l->made <= k;
    pthread_mutex_unlock(&l->lock);
    if (failed) return failure_tell(&l->failure);
    return STATUS_OK;
}

static void hand_out(struct loader *l, uint64_t k)
{
    const struct row *r = &l->slots[k % l->num_slots];
    size_t lane = row_number(l, k) % l->order->lanes, ints = l->order->ints;
    memcpy(l->cursors + lane * ints, r->cursor, ints * sizeof *l->cursors);
    if (l->running) pthread_mutex_lock(&l->lock);
    l->handed_out = k + 1;
    if (l->running) {
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
}

static void copy_row(const struct row *r, int i, struct batch *b)
{
    size_t at = (size_t)i * (size_t)b->T, bytes = (size_t)b->T * sizeof(int32_t);
    memcpy(b->ids_BT + at, r->ids, bytes), memcpy(b->labels_BT + at, r->labels, bytes);
    memcpy(b->start_BT + at, r->start, bytes), memcpy(b->end_BT + at, r->end, bytes);
    b->valid += r->valid, b->bytes += r->bytes;
}

/* A row without labels, to fill up the last batch of a single pass. */
static void blank_row(int i, struct batch *b)
{
    for (int t = 0; t < b->T; t++) {
        size_t at = (size_t)i * (size_t)b->T + (size_t)t;
        b->ids_BT[at] = 0, b->labels_BT[at] = LABEL_IGNORED;
        b->start_BT[at] = 0, b->end_BT[at] = b->T;
    }
}

enum status loader_next(struct loader *l, struct batch *b, int *rows)
{
    BUG_IF(b->T != l->options.seq_len);
    TRY(start_thread(l));
    b->valid = b->bytes = 0;
    *rows = 0;
    for (int i = 0; i < b->B; i++) {
        struct row *r;
        TRY(wait_row(l, l->handed_out, &r));
        if (r->empty) {
            blank_row(i, b);
            continue;
        }
        copy_row(r, i, b);
        hand_out(l, l->handed_out);
        ++*rows;
    }
    return STATUS_OK;
}

static enum status open_sources(struct loader *l)
{
    const struct data_config *c = l->options.data;
    if (!c->num_sources) FAIL(CONFIG, "there is no [[data.source]] to read");
    l->sources = heap(c->num_sources * sizeof *l->sources);
    for (size_t i = 0; i < c->num_sources; i++) {
        TRY(source_open(&l->sources[i], &c->sources[i]));
        l->num_sources++;
    }
    return STATUS_OK;
}

static enum status open_tokens(struct loader *l)
{
    const struct loader_options *o = &l->options;
    const struct tokenizer *t = o->tokenizer;
    int32_t size = t ? tokenizer_vocab_size(t) : 0;
    l->tokens = (struct source_tokens){.tokenizer = t,
                                       .vocab_size = o->vocab_size ? o->vocab_size : size,
                                       .bos = o->data->bos,
                                       .eos = o->data->eos};
    l->masked = !strcmp(o->objective->name, "masked");
    if (o->vocab_size && size > o->vocab_size)
        FAIL(CONFIG, "the tokenizer has %d tokens, model.vocab_size is %d", size, o->vocab_size);
    if (l->masked && !t) FAIL(CONFIG, "objective.name = \"masked\" needs data.tokenizer");
    if (l->masked) {
        l->mask_id = tokenizer_special(t, o->objective->mask_token);
        if (l->mask_id < 0)
            FAIL(CONFIG, "objective.mask_token = \"%s\": the tokenizer has no such special token",
                 o->objective->mask_token);
    }
    l->silent_id = o->data->eod_mask_loss && t ? tokenizer_eos(t) : -1;
    if (o->data->eod_mask_loss && l->silent_id < 0)
        FAIL(CONFIG, "data.eod_mask_loss = true needs a tokenizer with an end-of-text token");
    if (!t) return STATUS_OK;
    struct text bytes = {0};
    int64_t ids = l->tokens.vocab_size > size ? l->tokens.vocab_size : size;
    l->bytes_of = heap((size_t)ids);
    for (int32_t id = 0; id < size; id++) {
        text_clear(&bytes);
        if (tokenizer_special_name(t, id) || tokenizer_decode_part(t, &id, 1, &bytes)) continue;
        l->bytes_of[id] = (unsigned char)(bytes.len < 255 ? bytes.len : 255);
    }
    text_release(&bytes);
    TRY(encoder_make(&l->tokens.encoder, t));
    return STATUS_OK;
}

static enum status open_order(struct loader *l)
{
    bool megatron = !strcmp(l->options.data->order, "megatron");
    const struct order_setup setup = {.options = &l->options,
                                      .sources = l->sources,
                                      .num_sources = l->num_sources,
                                      .tokens = &l->tokens,
                                      .masked = l->masked};
    l->seed = (uint64_t)(l->options.data->seed < 0 ? 0 : l->options.data->seed);
    return (megatron ? order_megatron_open : order_streams_open)(&l->order, &setup);
}

static size_t num_cursors(const struct loader *l)
{
    return (size_t)l->order->lanes * l->order->ints;
}

static enum status open_loader(struct loader *l)
{
    const struct loader_options *o = &l->options;
    TRY(open_sources(l));
    TRY(open_tokens(l));
    TRY(open_order(l));
    l->cursors = heap(num_cursors(l) * sizeof *l->cursors);
    for (uint64_t lane = 0; lane < l->order->lanes; lane++)
        l->order->kind->save(l->order, lane, l->cursors + lane * l->order->ints);
    l->raw = heap(((size_t)o->seq_len + 1) * sizeof *l->raw);
    l->begins = heap((size_t)o->seq_len + 1);
    l->num_slots = o->rows_ahead ? (uint64_t)o->rows_ahead : 1;
    l->slots = heap(l->num_slots * sizeof *l->slots);
    for (uint64_t i = 0; i < l->num_slots; i++) row_init(&l->slots[i], o->seq_len, l->order->ints);
    return STATUS_OK;
}

enum status loader_open(struct loader **out, const struct loader_options *options)
{
    struct loader *l = heap(sizeof *l);
    l->options = *options;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    enum status st = open_loader(l);
    *out = st ? NULL : l;
    if (st) loader_close(l);
    return st;
}

void loader_close(struct loader *l)
{
    if (!l) return;
    stop_thread(l);
    if (l->order) l->order->kind->close(l->order);
    for (uint64_t i = 0; l->slots && i < l->num_slots; i++) row_release(&l->slots[i]);
    for (size_t i = 0; i < l->num_sources; i++) source_close(&l->sources[i]);
    encoder_free(l->tokens.encoder);
    text_release(&l->tokens.text);
    free(l->slots), free(l->sources), free(l->cursors);
    free(l->bytes_of), free(l->raw), free(l->begins);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}

/* What must be the same for a cursor to mean the same rows. */
static uint32_t settings_fingerprint(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    struct text t = {0};
    text_addf(&t, "%llu %d ", (unsigned long long)l->seed, o->seq_len);
    l->order->kind->settings(l->order, &t);
    text_addf(&t, " %s %.17g %d %s %lld", o->objective->name,
              l->masked ? o->objective->mask_probability : 0, l->masked ? l->mask_id : -1,
              o->tokenizer ? tokenizer_kind(o->tokenizer) : "",
              o->tokenizer ? (long long)tokenizer_vocab_size(o->tokenizer) : 0);
    uint32_t sum = checksum_crc32c(0, t.data, t.len);
    text_release(&t);
    return sum;
}

static bool is_own(const struct loader *l, size_t cursor)
{
    return cursor / l->order->ints % (uint64_t)l->options.num_shares == (uint64_t)l->options.share;
}

/* The sum over all shares, of which each adds its own streams' integers and 0 for the others. */
enum status loader_gather(struct loader *l, const struct comm *readers)
{
    size_t count = num_cursors(l);
    double *numbers = heap((count + 1) * sizeof *numbers);
    for (size_t i = 0; i < count; i++) numbers[i] = is_own(l, i) ? (double)l->cursors[i] : 0;
    enum status st = comm_all_reduce(readers, REDUCE_SUM, numbers, count);
    for (size_t i = 0; i < count && !st; i++) l->cursors[i] = (int64_t)numbers[i];
    free(numbers);
    return st;
}

enum status loader_save(const struct loader *l, struct text *json)
{
    uint64_t next = l->first + l->handed_out * (uint64_t)l->options.num_shares;
    text_addf(json, "{\"format\": 1, \"next_row\": %llu, \"settings\": %u, \"sources\": [",
              (unsigned long long)next, settings_fingerprint(l));
    for (size_t i = 0; i < l->num_sources; i++)
        text_addf(json, "%s%u", i ? ", " : "", l->sources[i].fingerprint);
    text_adds(json, "], \"streams\": [");
    size_t ints = l->order->ints;
    for (uint64_t s = 0; s < l->order->lanes; s++) {
        text_adds(json, s ? ",\n[" : "\n[");
        for (size_t i = 0; i < ints; i++)
            text_addf(json, "%s%lld", i ? "," : "", (long long)l->cursors[s * ints + i]);
        text_adds(json, "]");
    }
    text_adds(json, "]}");
    return STATUS_OK;
}

#define ELSE_ANEW                                                                                  \
    "checkpoint.exclude_from_loading = [\"dataloader\"] begins with the first row again"

static enum status check_origin(const struct loader *l, const struct json *cursor)
{
    int64_t sum;
    const struct json *sources = json_get(cursor, "sources"), *v = json_first(sources);
    TRY(json_get_int(cursor, "settings", 0, UINT32_MAX, &sum));
    if (sum != settings_fingerprint(l))
        FAIL(CONFIG, "the checkpoint's data cursor is of other settings of the data (order, seed, "
                     "seq_len, shuffle_window, bos, eos, row_overlap, validation_share; split, "
                     "blend, samples; tokenizer, objective); " ELSE_ANEW);
    if (json_count(sources) != l->num_sources)
        FAIL(CONFIG, "the checkpoint's data cursor is of %zu sources; there are %zu; " ELSE_ANEW,
             json_count(sources), l->num_sources);
    for (size_t i = 0; i < l->num_sources; i++, v = json_next(v))
        if (!json_as_int(v, 0, UINT32_MAX, &sum) || sum != l->sources[i].fingerprint)
            FAIL(CONFIG,
                 "%s is not what the checkpoint's data cursor was made with: its files, "
                 "column or weight have changed; " ELSE_ANEW,
                 l->sources[i].config->path);
    return STATUS_OK;
}

enum status loader_load(struct loader *l, const struct json *cursor)
{
    int64_t next, most = INT64_C(1) << 53;
    BUG_IF(l->running || l->handed_out);
    if (!json_is_object(cursor)) FAIL(DATA, "the checkpoint has no data cursor");
    TRY(check_origin(l, cursor));
    TRY(json_get_int(cursor, "next_row", 0, most, &next));
    const struct json *streams = json_get(cursor, "streams"), *s = json_first(streams);
    if (!json_is_array(streams)) FAIL(DATA, "the data cursor has no streams");
    if (json_count(streams) != l->order->lanes)
        FAIL(CONFIG, "the checkpoint's data cursor is of %zu streams; there are %llu; " ELSE_ANEW,
             json_count(streams), (unsigned long long)l->order->lanes);
    if (l->order->ints && next % l->options.num_shares)
        FAIL(CONFIG, "row %lld is not where %d ranks could begin", (long long)next,
             l->options.num_shares);
    for (uint64_t i = 0; i < l->order->lanes; i++, s = json_next(s)) {
        int64_t *ints = l->cursors + i * l->order->ints;
        const struct json *v = json_first(s);
        for (size_t j = 0; j < l->order->ints; j++, v = json_next(v))
            if (!v || !json_as_int(v, -1, most, &ints[j]))
                FAIL(DATA, "the data cursor of stream %llu is damaged", (unsigned long long)i);
        TRY(l->order->kind->load(l->order, i, ints, l->tokens.vocab_size));
    }
    l->first = (uint64_t)next;
    return STATUS_OK;
}

int64_t loader_memory_bytes(const struct loader *l)
{
    enum { ENCODER = 5 << 20 };
    int64_t row = (int64_t)l->options.seq_len * 16 + (int64_t)l->order->ints * 8;
    return (int64_t)l->num_slots * row + l->order->kind->memory_bytes(l->order) +
           (l->tokens.encoder ? ENCODER : 0);
}
