// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/loader_state.h"
#include "ops/cross_entropy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether the rows of a batch are dealt to microbatches (loader_options.deal). */
static bool is_dealt(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    return o->deal > 1 && o->block > 1 && l->order->block == 1 && !o->once;
}

/* Index of element i of consecutive rows x columns matrices after each is transposed. */
static int transposed(int i, int rows, int columns)
{
    int k = i % (rows * columns);
    return i - k + k % columns * rows + k / columns;
}

/* Where the i-th row of a batch goes. */
static int place_of_row(const struct loader *l, int i)
{
    const struct loader_options *o = &l->options;
    return is_dealt(l) ? transposed(i, o->block, o->deal) : i;
}

/* The inverse of place_of_row. */
static int row_at_place(const struct loader *l, int place)
{
    const struct loader_options *o = &l->options;
    return is_dealt(l) ? transposed(place, o->deal, o->block) : place;
}

uint64_t loader_delivered_row(const struct loader *l, int reader, int B, int place)
{
    uint64_t row = (uint64_t)row_at_place(l, place);
    return number_of(l, reader, l->num_delivered - (uint64_t)B + row);
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

static enum status read_row(struct loader *l, uint64_t number, struct token_row *tokens)
{
    enum status st = l->order->kind->row(l->order, number, &l->tokens, tokens);
    TRY(bad_records_stop(st, "data.on_bad_record = \"skip\""));
    return STATUS_OK;
}

static enum status build_row(struct loader *l, uint64_t k, struct loader_row *r)
{
    uint64_t number = row_number(l, k);
    struct order *o = l->order;
    int64_t max_rows = l->options.max_rows;
    struct token_row tokens = {
        .need = l->options.seq_len + !l->masked, .ids = l->raw, .begins = l->begins};
    l->tokens.bad = loader_skips_bad(l) ? &r->bad : NULL;
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
        if (loader_skips_bad(l)) deliver_bad_records(l, r);
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

void loader_mark(struct loader *l)
{
    memcpy(l->marked, l->cursors, loader_num_cursor_ints(l) * sizeof *l->marked);
    l->num_marked = l->num_delivered;
    l->marked_read = l->bad.num_read, l->marked_bad = l->bad.num_bad;
}

void loader_restore_mark(struct loader *l)
{
    stop_prefetch(l);
    memcpy(l->cursors, l->marked, loader_num_cursor_ints(l) * sizeof *l->cursors);
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

static void warn_missing(const char *key, bool is_enabled, int32_t id, const char *token)
{
    if (!is_enabled || id >= 0) return;
    log_line(LOG_WARN,
             "data.%s = true, but the tokenizer has no %s token, so documents get none: name it in "
             "the tokenizer_config.json beside tokenizer.json, or set data.%s = false",
             key, token, key);
}

/* GPT-2's tokenizer_config.json, for example, names neither. */
static void warn_missing_tokens(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    bool is_text = false;
    for (size_t i = 0; i < l->num_sources; i++) is_text |= !l->sources[i].holds_ids;
    if (!o->tokenizer || !is_text || o->reader || o->once || o->validation) return;
    warn_missing("bos", o->data->bos, tokenizer_bos(o->tokenizer), "begin-of-text");
    warn_missing("eos", o->data->eos, tokenizer_eos(o->tokenizer), "end-of-text");
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
    warn_missing_tokens(l);
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
    l->cursors = heap(loader_num_cursor_ints(l) * sizeof *l->cursors);
    l->marked = heap(loader_num_cursor_ints(l) * sizeof *l->marked);
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

struct bad_records *loader_bad_records(struct loader *l) { return &l->bad; }

int64_t loader_memory_bytes(const struct loader *l)
{
    enum { ENCODER = 5 << 20 };
    int64_t row = (int64_t)l->options.seq_len * 16 + (int64_t)l->order->cursor_ints * 8;
    return (int64_t)l->ring_size * row + l->order->kind->memory_bytes(l->order) +
           (l->tokens.encoder ? ENCODER : 0);
}
