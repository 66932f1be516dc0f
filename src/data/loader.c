// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/order.h"
#include "data/provenance.h"
#include "ops/cross_entropy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the prefetch ring: one row, and its stream's cursor after the row. */
struct loader_row {
    struct batch row; /* B = 1 */
    int64_t *cursor;
    bool empty;             /* a single pass has ended */
    struct bad_records bad; /* skipped while the row was read */
};

struct loader {
    struct loader_options options;
    struct source *sources;
    struct provenance
        provenance; /* not sampled for a single pass, whose position runs do not save */
    size_t num_sources;
    struct order *order;
    uint64_t seed;
    struct source_tokens tokens;
    bool masked;
    int32_t mask_id;
    int32_t eod_id;             /* data.eod_mask_loss: no loss where this is the input; -1: off */
    unsigned char *bytes_of_id; /* length of each ID's text; NULL without a tokenizer */
    int32_t *raw;               /* seq_len + 1 tokens of the row being built */
    unsigned char *begins;
    int64_t *cursors;       /* of all streams, after the rows delivered */
    uint64_t first_row;     /* global row number where this loader began */
    uint64_t num_delivered; /* rows of this reader since then */
    int64_t *marked;        /* these, and the counts of bad records, at loader_mark */
    uint64_t num_marked, marked_read, marked_bad;
    struct bad_records bad; /* skipped in the rows delivered; counts those before first_row, too */
    int64_t bad_total[2]; /* its num_read and num_bad; after loader_gather_cursor of all readers */
    struct row_ranges skips;  /* not to be delivered; constant while rows are read */
    struct row_ranges passed; /* before the position, for the cursor: not trained on */
    /* The prefetch ring: num_built - num_delivered <= ring_size. */
    struct loader_row *ring;
    uint64_t ring_size, num_built;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, stop;
    struct failure failure;
};

static void loader_row_init(struct loader_row *r, int T, size_t cursor_ints)
{
    size_t bytes = (size_t)T * sizeof(int32_t);
    r->row = (struct batch){.B = 1, .T = T};
    r->row.ids_BT = heap(bytes), r->row.labels_BT = heap(bytes);
    r->row.start_BT = heap(bytes), r->row.end_BT = heap(bytes);
    r->cursor = heap(cursor_ints * sizeof *r->cursor);
}

static void loader_row_release(struct loader_row *r)
{
    free(r->row.ids_BT), free(r->row.labels_BT);
    free(r->row.start_BT), free(r->row.end_BT);
    free(r->cursor);
    bad_records_release(&r->bad);
}

/* Sets the bounds of each token's document within the row. */
static void set_document_bounds(const struct loader *l, int filled, struct loader_row *r)
{
    int T = l->options.seq_len, start = 0;
    for (int i = 0; i <= T; i++) {
        bool begins = i == T || (i < filled ? l->begins[i] & TOKEN_BEGINS : i == filled);
        if (!begins || i == 0) continue;
        for (int j = start; j < i; j++) r->row.start_BT[j] = start, r->row.end_BT[j] = i;
        start = i;
    }
}

static void build_masked_row(const struct loader *l, uint64_t number, int filled,
                             struct loader_row *r)
{
    const struct objective_config *o = l->options.objective;
    for (int i = 0; i < l->options.seq_len; i++) {
        bool masked = i < filled && !(l->begins[i] & TOKEN_SKIPPED) &&
                      rng_uniform(l->seed, RNG_MASK, number, (uint64_t)i) < o->mask_probability;
        r->row.labels_BT[i] = masked ? l->raw[i] : LABEL_IGNORED;
        r->row.ids_BT[i] = masked ? l->mask_id : i < filled ? l->raw[i] : 0;
    }
}

static void build_causal_row(const struct loader *l, int filled, struct loader_row *r)
{
    for (int i = 0; i < l->options.seq_len; i++) {
        r->row.ids_BT[i] = i < filled ? l->raw[i] : 0;
        bool counts = i + 1 < filled && l->raw[i] != l->eod_id &&
                      !((l->begins[i] | l->begins[i + 1]) & TOKEN_SKIPPED);
        r->row.labels_BT[i] = counts ? l->raw[i + 1] : LABEL_IGNORED;
    }
}

/* The global number of a reader's row k: readers take blocks in turn. */
static uint64_t number_of(const struct loader *l, int reader, uint64_t k)
{
    uint64_t readers = (uint64_t)l->options.num_readers, block = l->order->block;
    uint64_t n = (k / block * readers + (uint64_t)reader) * block + k % block;
    return row_ranges_outside(&l->skips, l->first_row, n);
}

static uint64_t row_number(const struct loader *l, uint64_t k)
{
    return number_of(l, l->options.reader, k);
}

uint64_t loader_delivered_row(const struct loader *l, int reader, int B, int i)
{
    return number_of(l, reader, l->num_delivered - (uint64_t)B + (uint64_t)i);
}

uint64_t loader_position(const struct loader *l)
{
    uint64_t rows = l->num_delivered * (uint64_t)l->options.num_readers;
    return row_ranges_outside(&l->skips, l->first_row, rows);
}

enum status loader_skip(struct loader *l, struct row_interval rows)
{
    uint64_t readers = (uint64_t)l->options.num_readers;
    BUG_IF(l->running || l->num_delivered);
    if (l->order->cursor_ints && (rows.begin % readers || rows.end % readers))
        FAIL(CONFIG,
             "rows %llu to %llu cannot be skipped: the first row and the one after the last must "
             "be multiples of %d data-parallel ranks",
             (unsigned long long)rows.begin, (unsigned long long)rows.end - 1,
             l->options.num_readers);
    row_ranges_add(&l->skips, rows);
    return STATUS_OK;
}

void loader_pass_over(struct loader *l, struct row_interval rows)
{
    BUG_IF(rows.end > loader_position(l));
    row_ranges_add(&l->passed, rows);
}

static bool skips_bad(const struct loader *l)
{
    return l->options.data->on_bad_record == ON_BAD_RECORD_skip;
}

static enum status read_row(struct loader *l, uint64_t number, struct token_row *tokens)
{
    enum status st = l->order->kind->row(l->order, number, &l->tokens, tokens);
    if (st == STATUS_RECORD) {
        status_prefix(st, "bad record (data.on_bad_record = \"skip\" would skip it)");
        st = STATUS_DATA;
    }
    TRY(st);
    return STATUS_OK;
}

static enum status build_row(struct loader *l, uint64_t k, struct loader_row *r)
{
    uint64_t number = row_number(l, k);
    struct order *o = l->order;
    int64_t max_rows = l->options.max_rows;
    struct token_row tokens = {
        .need = l->options.seq_len + !l->masked, .ids = l->raw, .begins = l->begins};
    l->tokens.bad = skips_bad(l) ? &r->bad : NULL;
    if (!max_rows || number < (uint64_t)max_rows) TRY(read_row(l, number, &tokens));
    TRY(source_tokens_check(&l->tokens));
    int filled = tokens.filled;
    /* a row with only the overlapping token counts as empty */
    r->empty = filled <= (!l->masked);
    if (l->masked)
        build_masked_row(l, number, filled, r);
    else
        build_causal_row(l, filled, r);
    set_document_bounds(l, filled, r);
    r->row.valid = r->row.bytes = 0;
    for (int i = 0; i < l->options.seq_len; i++) {
        if (r->row.labels_BT[i] == LABEL_IGNORED) continue;
        r->row.valid++;
        if (l->bytes_of_id) r->row.bytes += l->bytes_of_id[r->row.labels_BT[i]];
    }
    o->kind->save(o, number % o->num_streams, r->cursor);
    return STATUS_OK;
}

static void *run_prefetch_thread(void *context)
{
    struct loader *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->failure.status) {
        if (l->num_built - l->num_delivered >= l->ring_size) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        uint64_t k = l->num_built;
        pthread_mutex_unlock(&l->lock);
        enum status st = build_row(l, k, &l->ring[k % l->ring_size]);
        pthread_mutex_lock(&l->lock);
        if (!status_save(&l->failure, st)) l->num_built++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static enum status start_prefetch(struct loader *l)
{
    if (!l->options.prefetch_rows || l->running) return STATUS_OK;
    l->stop = false;
    TRY(thread_start_background(&l->thread, run_prefetch_thread, l));
    l->running = true;
    return STATUS_OK;
}

static void stop_prefetch(struct loader *l)
{
    if (!l->running) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = false;
}

/* Row k of this reader, from the prefetch thread if it runs. */
static enum status wait_row(struct loader *l, uint64_t k, struct loader_row **row)
{
    *row = &l->ring[k % l->ring_size];
    if (!l->running) { /* a failure lasts: half a row has been read */
        if (!l->failure.status) status_save(&l->failure, build_row(l, k, *row));
        TRY(status_restore(&l->failure));
        l->num_built = k + 1;
        return STATUS_OK;
    }
    pthread_mutex_lock(&l->lock);
    while (l->num_built <= k && !l->failure.status) pthread_cond_wait(&l->changed, &l->lock);
    bool failed = l->num_built <= k;
    pthread_mutex_unlock(&l->lock);
    if (failed) return status_restore(&l->failure);
    return STATUS_OK;
}

/* In a single pass every reader reads all documents, so only the first one counts and lists. */
static void deliver_bad_records(struct loader *l, struct loader_row *r)
{
    bool counts = !l->options.once || l->options.reader == 0;
    if (!counts) bad_records_clear(&r->bad), r->bad.num_read = r->bad.num_bad = 0;
    bad_records_move(&l->bad, &r->bad);
    l->bad_total[0] = (int64_t)l->bad.num_read, l->bad_total[1] = (int64_t)l->bad.num_bad;
}

static void deliver_row(struct loader *l, uint64_t k)
{
    const struct loader_row *r = &l->ring[k % l->ring_size];
    size_t stream = row_number(l, k) % l->order->num_streams, ints = l->order->cursor_ints;
    memcpy(l->cursors + stream * ints, r->cursor, ints * sizeof *l->cursors);
    if (l->running) pthread_mutex_lock(&l->lock);
    l->num_delivered = k + 1;
    if (l->running) {
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
}

/* Where the i-th row of a batch goes (loader_options.deal). */
static int place_of_row(const struct loader *l, int i)
{
    const struct loader_options *o = &l->options;
    bool is_dealt = o->deal > 1 && o->block > 1 && l->order->block == 1 && !o->once;
    if (!is_dealt) return i;
    int k = i % (o->deal * o->block);
    return i - k + k % o->deal * o->block + k / o->deal;
}

enum status loader_next(struct loader *l, struct batch *b, int *rows)
{
    BUG_IF(b->T != l->options.seq_len);
    TRY(start_prefetch(l));
    b->valid = b->bytes = 0;
    *rows = 0;
    for (int i = 0; i < b->B; i++) {
        struct loader_row *r;
        int place = place_of_row(l, i);
        TRY(wait_row(l, l->num_delivered, &r));
        if (skips_bad(l)) deliver_bad_records(l, r);
        if (r->empty) {
            batch_pad_row(b, place);
            continue;
        }
        batch_copy_row(b, place, &r->row);
        deliver_row(l, l->num_delivered);
        ++*rows;
    }
    return STATUS_OK;
}

static size_t num_cursor_ints(const struct loader *l)
{
    return (size_t)l->order->num_streams * l->order->cursor_ints;
}

void loader_mark(struct loader *l)
{
    memcpy(l->marked, l->cursors, num_cursor_ints(l) * sizeof *l->marked);
    l->num_marked = l->num_delivered;
    l->marked_read = l->bad.num_read, l->marked_bad = l->bad.num_bad;
}

void loader_rewind(struct loader *l)
{
    stop_prefetch(l);
    memcpy(l->cursors, l->marked, num_cursor_ints(l) * sizeof *l->cursors);
    l->num_delivered = l->num_marked;
    bad_records_clear(&l->bad);
    l->bad.num_read = l->marked_read, l->bad.num_bad = l->marked_bad;
    l->bad_total[0] = (int64_t)l->bad.num_read, l->bad_total[1] = (int64_t)l->bad.num_bad;
}

/* The separator is the last ID in gpt-neuro-arch, and the one after the motifs here. */
static enum status check_motifs(const struct source *s, int64_t vocab_size)
{
    if (!s->motifs || !vocab_size || motifs_separator(s->motifs) + 1 == vocab_size)
        return STATUS_OK;
    FAIL(CONFIG, "%s: model.vocab_size = %lld: must be %d, k_limit + 2 of that file",
         s->config->motifs, (long long)vocab_size, motifs_separator(s->motifs) + 1);
}

static enum status open_sources(struct loader *l)
{
    const struct data_config *c = l->options.data;
    if (!c->num_sources) FAIL(CONFIG, "no [[data.source]] is configured");
    l->sources = heap(c->num_sources * sizeof *l->sources);
    for (size_t i = 0; i < c->num_sources; i++) {
        TRY(source_open(&l->sources[i], &c->sources[i]));
        l->num_sources++;
        TRY(check_motifs(&l->sources[i], l->options.vocab_size));
    }
    l->provenance = (struct provenance){.sources = l->sources,
                                        .num_sources = l->num_sources,
                                        .tokenizer = l->options.tokenizer,
                                        .reader = (size_t)l->options.reader,
                                        .num_readers = (size_t)l->options.num_readers};
    return l->options.once ? STATUS_OK : provenance_sample(&l->provenance);
}

static enum status open_tokens(struct loader *l)
{
    const struct loader_options *o = &l->options;
    const struct tokenizer *t = o->tokenizer;
    int32_t size = t ? tokenizer_vocab_size(t) : 0;
    /* a token that is both begins a document, as in torchtitan */
    bool is_one = t && o->data->bos && tokenizer_bos(t) == tokenizer_eos(t);
    l->tokens = (struct source_tokens){.tokenizer = t,
                                       .vocab_size = o->vocab_size ? o->vocab_size : size,
                                       .bos = o->data->bos,
                                       .eos = o->data->eos && !is_one};
    l->masked = o->objective->name == OBJECTIVE_masked;
    if (o->vocab_size && size > o->vocab_size)
        FAIL(CONFIG, "the tokenizer has %d tokens, more than model.vocab_size = %d", size,
             o->vocab_size);
    if (l->masked && !t) FAIL(CONFIG, "objective.name = \"masked\" requires data.tokenizer");
    if (l->masked) {
        l->mask_id = tokenizer_special(t, o->objective->mask_token);
        if (l->mask_id < 0)
            FAIL(CONFIG, "objective.mask_token = \"%s\": not a special token of the tokenizer",
                 o->objective->mask_token);
    }
    l->eod_id = o->data->eod_mask_loss && t ? tokenizer_eos(t) : -1;
    if (o->data->eod_mask_loss && l->eod_id < 0)
        FAIL(CONFIG, "data.eod_mask_loss = true requires a tokenizer with an end-of-text token");
    if (!t) return STATUS_OK;
    struct text bytes = {0};
    int64_t ids = l->tokens.vocab_size > size ? l->tokens.vocab_size : size;
    l->bytes_of_id = heap((size_t)ids);
    for (int32_t id = 0; id < size; id++) {
        text_clear(&bytes);
        if (tokenizer_special_name(t, id) || tokenizer_decode_part(t, &id, 1, &bytes)) continue;
        l->bytes_of_id[id] = (unsigned char)(bytes.len < 255 ? bytes.len : 255);
    }
    text_release(&bytes);
    TRY(encoder_make(&l->tokens.encoder, t));
    return STATUS_OK;
}

static enum status open_order(struct loader *l)
{
    static enum status (*const open[])(struct order **, const struct order_setup *) = {
        [ORDER_streams] = order_streams_open, [ORDER_megatron] = order_megatron_open};
    const struct order_setup setup = {.options = &l->options,
                                      .sources = l->sources,
                                      .num_sources = l->num_sources,
                                      .tokens = &l->tokens,
                                      .masked = l->masked};
    l->seed = (uint64_t)(l->options.data->seed < 0 ? 0 : l->options.data->seed);
    return open[l->options.data->order](&l->order, &setup);
}

static enum status open_loader(struct loader *l)
{
    const struct loader_options *o = &l->options;
    TRY(open_sources(l));
    TRY(open_tokens(l));
    TRY(open_order(l));
    l->cursors = heap(num_cursor_ints(l) * sizeof *l->cursors);
    l->marked = heap(num_cursor_ints(l) * sizeof *l->marked);
    for (uint64_t stream = 0; stream < l->order->num_streams; stream++)
        l->order->kind->save(l->order, stream, l->cursors + stream * l->order->cursor_ints);
    l->raw = heap(((size_t)o->seq_len + 1) * sizeof *l->raw);
    l->begins = heap((size_t)o->seq_len + 1);
    l->ring_size = o->prefetch_rows ? (uint64_t)o->prefetch_rows : 1;
    l->ring = heap(l->ring_size * sizeof *l->ring);
    for (uint64_t i = 0; i < l->ring_size; i++) {
        loader_row_init(&l->ring[i], o->seq_len, l->order->cursor_ints);
        l->ring[i].bad.is_unlimited = o->data->bad_record_limit >= 1;
    }
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
    stop_prefetch(l);
    if (l->order) l->order->kind->close(l->order);
    for (uint64_t i = 0; l->ring && i < l->ring_size; i++) loader_row_release(&l->ring[i]);
    provenance_release(&l->provenance);
    for (size_t i = 0; i < l->num_sources; i++) source_close(&l->sources[i]);
    encoder_free(l->tokens.encoder);
    text_release(&l->tokens.text);
    row_ranges_release(&l->skips), row_ranges_release(&l->passed);
    bad_records_release(&l->bad);
    free(l->ring), free(l->sources), free(l->cursors), free(l->marked);
    free(l->bytes_of_id), free(l->raw), free(l->begins);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}

size_t loader_num_sources(const struct loader *l) { return l->num_sources; }
const struct source *loader_source(const struct loader *l, size_t i) { return &l->sources[i]; }

/* A cursor is valid only for the settings it was saved with. */
static uint32_t settings_fingerprint(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    struct text t = {0};
    text_addf(&t, "%llu %d ", (unsigned long long)l->seed, o->seq_len);
    l->order->kind->settings(l->order, &t);
    text_addf(&t, " %s %.17g %d %s %lld", objective_kind_word(o->objective->name),
              l->masked ? o->objective->mask_probability : 0, l->masked ? l->mask_id : -1,
              o->tokenizer ? tokenizer_kind(o->tokenizer) : "",
              o->tokenizer ? (long long)tokenizer_vocab_size(o->tokenizer) : 0);
    uint32_t sum = checksum_crc32c(0, t.data, t.len);
    text_release(&t);
    return sum;
}

/* Whether l->cursors[index] belongs to a stream that this rank reads. */
static bool is_own_stream(const struct loader *l, size_t index)
{
    return index / l->order->cursor_ints % (uint64_t)l->options.num_readers ==
           (uint64_t)l->options.reader;
}

/* An all-reduce (sum), in which each reader contributes its own streams' integers and 0 for the
 * others. */
enum status loader_gather_cursor(struct loader *l, const struct comm *readers)
{
    size_t count = num_cursor_ints(l);
    for (size_t i = 0; i < count; i++)
        if (!is_own_stream(l, i)) l->cursors[i] = 0;
    TRY(comm_all_reduce_int64(readers, REDUCE_SUM, l->cursors, count));
    l->bad_total[0] = (int64_t)l->bad.num_read, l->bad_total[1] = (int64_t)l->bad.num_bad;
    if (skips_bad(l)) TRY(comm_all_reduce_int64(readers, REDUCE_SUM, l->bad_total, 2));
    return provenance_gather(&l->provenance, readers);
}

enum { CURSOR_FORMAT = 1 };

/* Rows before the position that were never trained on, or in vain. */
static void write_passed(const struct loader *l, struct json_writer *w)
{
    struct row_ranges all = {0};
    row_ranges_add_part(&all, &l->passed, (struct row_interval){0, UINT64_MAX});
    row_ranges_add_part(&all, &l->skips, (struct row_interval){l->first_row, loader_position(l)});
    row_ranges_write(&all, "passed_over", w);
    row_ranges_release(&all);
}

void loader_save(const struct loader *l, struct json_writer *w)
{
    uint64_t next = loader_position(l);
    size_t ints = l->order->cursor_ints;
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "format", CURSOR_FORMAT);
    json_write_int(w, "next_row", (int64_t)next);
    write_passed(l, w);
    json_write_int(w, "settings", settings_fingerprint(l));
    if (skips_bad(l)) {
        json_begin_object(w, "records", JSON_INLINE);
        json_write_int(w, "read", l->bad_total[0]);
        json_write_int(w, "bad", l->bad_total[1]);
        json_end_object(w);
    }
    provenance_write(&l->provenance, w);
    json_begin_array(w, "streams", JSON_INLINE);
    for (uint64_t s = 0; s < l->order->num_streams; s++) {
        json_newline(w, 0);
        json_begin_array(w, NULL, JSON_COMPACT);
        for (size_t i = 0; i < ints; i++) json_write_int(w, NULL, l->cursors[s * ints + i]);
        json_end_array(w);
    }
    json_end_array(w);
    json_end_object(w);
}

#define OR_RESTART "checkpoint.exclude_from_loading = [\"dataloader\"] restarts from the first row"

static enum status check_settings(const struct loader *l, const struct json *cursor)
{
    int64_t sum;
    TRY(json_get_int(cursor, "settings", 0, UINT32_MAX, &sum));
    if (sum != settings_fingerprint(l))
        FAIL(CONFIG,
             "the data position was saved with different data settings (order, seed, seq_len, "
             "shuffle_window, bos, eos, row_overlap, validation_share; split, blend, "
             "samples; tokenizer, objective); " OR_RESTART);
    return STATUS_OK;
}

/* The first reader continues the count of all. */
static enum status load_bad_total(struct loader *l, const struct json *records)
{
    int64_t max = INT64_C(1) << 53, read, bad;
    if (!records || !skips_bad(l) || l->options.reader) return STATUS_OK;
    TRY(json_get_int(records, "read", 0, max, &read));
    TRY(json_get_int(records, "bad", 0, read, &bad));
    l->bad.num_read = (uint64_t)read, l->bad.num_bad = (uint64_t)bad;
    l->bad_total[0] = read, l->bad_total[1] = bad;
    return STATUS_OK;
}

struct bad_records *loader_bad_records(struct loader *l) { return &l->bad; }

static enum status check_provenance(struct loader *l, const struct json *cursor)
{
    const struct provenance_rules rules = {.accepted = &l->options.data->accept_changed,
                                           .is_quiet = l->options.reader > 0,
                                           .saved_in = "the checkpoint",
                                           .accept_begin = "data.accept_changed = [",
                                           .accept_next = ", ",
                                           .accept_end = "]",
                                           .restart = OR_RESTART};
    bool *is_changed = heap(l->num_sources * sizeof *is_changed);
    enum status st = provenance_check(&l->provenance, cursor, &rules, is_changed);
    for (size_t i = 0; i < l->num_sources; i++) l->sources[i].is_changed = !st && is_changed[i];
    free(is_changed);
    return st;
}

enum status loader_load(struct loader *l, const struct json *cursor)
{
    int64_t next, max = INT64_C(1) << 53;
    BUG_IF(l->running || l->num_delivered);
    if (!json_is_object(cursor)) FAIL(DATA, "the checkpoint has no data position");
    const struct json *format = json_get(cursor, "format");
    if (format && !json_as_int(format, CURSOR_FORMAT, CURSOR_FORMAT, &next))
        FAIL(CONFIG, "the data position has an unknown \"format\"; this program reads format %d",
             CURSOR_FORMAT);
    TRY(check_provenance(l, cursor));
    TRY(check_settings(l, cursor));
    TRY(json_get_int(cursor, "next_row", 0, max, &next));
    const struct json *streams = json_get(cursor, "streams"), *s = json_first(streams);
    if (!json_is_array(streams)) FAIL(DATA, "the data position has no streams");
    if (json_count(streams) != l->order->num_streams)
        FAIL(CONFIG,
             "the data position was saved with %zu streams, the data now has %llu: set "
             "data.streams = %zu; " OR_RESTART,
             json_count(streams), (unsigned long long)l->order->num_streams, json_count(streams));
    if (l->order->cursor_ints && next % l->options.num_readers)
        FAIL(CONFIG, "the data position, row %lld, is not a multiple of %d data-parallel ranks",
             (long long)next, l->options.num_readers);
    TRY(row_ranges_read(&l->passed, json_get(cursor, "passed_over")));
    const struct order_position at = {(uint64_t)next, row_ranges_rows(&l->passed),
                                      l->tokens.vocab_size};
    for (uint64_t i = 0; i < l->order->num_streams; i++, s = json_next(s)) {
        int64_t *ints = l->cursors + i * l->order->cursor_ints;
        const struct json *v = json_first(s);
        for (size_t j = 0; j < l->order->cursor_ints; j++, v = json_next(v))
            if (!v || !json_as_int(v, -1, max, &ints[j]))
                FAIL(DATA, "the data position of stream %llu is damaged", (unsigned long long)i);
        TRY(l->order->kind->load(l->order, i, ints, &at));
    }
    l->first_row = (uint64_t)next;
    TRY(load_bad_total(l, json_get(cursor, "records")));
    return STATUS_OK;
}

int64_t loader_memory_bytes(const struct loader *l)
{
    enum { ENCODER = 5 << 20 };
    int64_t row = (int64_t)l->options.seq_len * 16 + (int64_t)l->order->cursor_ints * 8;
    return (int64_t)l->ring_size * row + l->order->kind->memory_bytes(l->order) +
           (l->tokens.encoder ? ENCODER : 0);
}
