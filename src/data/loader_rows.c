// SPDX-License-Identifier: Apache-2.0
#include "data/loader_rows.h"

#include "base/rng.h"
#include "base/thread.h"
#include "ops/cross_entropy.h"

#include <stdlib.h>
#include <string.h>

void loader_rows_init(struct loader_row *r, const struct loader *l)
{
    int T = l->options.seq_len, need = T + !l->masked;
    size_t bytes = (size_t)T * sizeof(int32_t);
    r->row = (struct batch){.B = 1, .T = T};
    r->row.ids_BT = heap(bytes), r->row.labels_BT = heap(bytes);
    r->row.start_BT = heap(bytes), r->row.end_BT = heap(bytes);
    r->row.has_weights = l->options.objective->name == OBJECTIVE_diffusion;
    if (r->row.has_weights) r->row.weight_BT = heap(bytes);
    r->tokens = (struct token_row){.need = need,
                                   .ids = heap((size_t)need * sizeof *r->tokens.ids),
                                   .begins = heap((size_t)need)};
    if (l->options.lists_spans) r->tokens.spans = &r->spans;
    r->cursor = heap(l->order->cursor_ints * sizeof *r->cursor);
    r->bad.is_unlimited = l->options.data->bad_record_limit >= 1;
}

void loader_rows_free(struct loader_row *r)
{
    free(r->row.ids_BT), free(r->row.labels_BT);
    free(r->row.start_BT), free(r->row.end_BT), free(r->row.weight_BT);
    free(r->tokens.ids), free(r->tokens.begins);
    token_spans_release(&r->spans);
    free(r->cursor);
    bad_records_release(&r->bad);
}

/* Sets the bounds of each token's document within the row. */
static void set_document_bounds(const struct loader *l, struct loader_row *r)
{
    const unsigned char *begin = r->tokens.begins;
    int T = l->options.seq_len, filled = r->tokens.filled, start = 0;
    for (int i = 0; i <= T; i++) {
        bool begins =
            i == T || (i < filled ? begin[i] & (TOKEN_BEGINS | TOKEN_PIECE) : i == filled);
        if (!begins || i == 0) continue;
        for (int j = start; j < i; j++) r->row.start_BT[j] = start, r->row.end_BT[j] = i;
        start = i;
    }
}

/* Masked diffusion (Nie et al. 2025, LLaDA) draws it for each row: with t uniform in [0, 1) the
 * loss of a masked token weighs 1 / p, where the bound below keeps the weight finite. */
static double mask_probability(const struct loader *l, uint64_t row)
{
    const double least = 1e-3;
    const struct objective_config *o = l->options.objective;
    if (o->name != OBJECTIVE_diffusion) return o->mask_probability;
    return least + (1 - least) * rng_uniform(l->seed, RNG_DIFFUSION, row, 0);
}

static void build_masked_row(const struct loader *l, struct loader_row *r)
{
    const struct token_row *t = &r->tokens;
    double p = mask_probability(l, r->number);
    for (int i = 0; i < l->options.seq_len; i++) {
        bool counts = i < t->filled && !(t->begins[i] & TOKEN_SKIPPED);
        bool masked = counts && rng_uniform(l->seed, RNG_MASK, r->number, (uint64_t)i) < p;
        if (r->row.has_weights) r->row.weight_BT[i] = counts ? (float)(1 / p) : 0;
        r->row.labels_BT[i] = masked ? t->ids[i] : LABEL_IGNORED;
        r->row.ids_BT[i] = masked ? l->mask_id : i < t->filled ? t->ids[i] : 0;
    }
}

static void build_causal_row(const struct loader *l, struct loader_row *r)
{
    const struct token_row *t = &r->tokens;
    for (int i = 0; i < l->options.seq_len; i++) {
        r->row.ids_BT[i] = i < t->filled ? t->ids[i] : 0;
        bool counts = i + 1 < t->filled && t->ids[i] != l->eod_id &&
                      !((t->begins[i] | t->begins[i + 1]) & TOKEN_SKIPPED) &&
                      !(t->begins[i + 1] & TOKEN_PIECE);
        r->row.labels_BT[i] = counts ? t->ids[i + 1] : LABEL_IGNORED;
    }
}

void loader_rows_build(const struct loader *l, struct loader_row *r)
{
    if (l->masked)
        build_masked_row(l, r);
    else
        build_causal_row(l, r);
    set_document_bounds(l, r);
    r->row.valid = r->row.bytes = r->row.padding = 0;
    if (r->tokens.filled < l->options.seq_len)
        r->row.padding = l->options.seq_len - r->tokens.filled;
    for (int i = 0; i < l->options.seq_len; i++) {
        if (!batch_is_valid(&r->row, (size_t)i)) continue;
        int32_t label = r->row.labels_BT[i];
        r->row.valid++;
        if (l->bytes_of_id)
            r->row.bytes += l->bytes_of_id[label == LABEL_IGNORED ? r->row.ids_BT[i] : label];
    }
}

uint64_t loader_rows_number(const struct loader *l, uint64_t position)
{
    return row_ranges_outside(&l->skips, l->first_row, position - l->first_position);
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

int loader_rows_place(const struct loader *l, int i)
{
    const struct loader_options *o = &l->options;
    return is_dealt(l) ? transposed(i, o->block, o->deal) : i;
}

/* The inverse of loader_rows_place. */
int loader_rows_at_place(const struct loader *l, int place)
{
    const struct loader_options *o = &l->options;
    return is_dealt(l) ? transposed(place, o->deal, o->block) : place;
}

/* A single pass has one stream, which every reader reads whole. */
bool loader_rows_have_streams(const struct loader *l)
{
    return l->order->cursor_ints && !l->options.once;
}

/* Rows that earlier loaders of the run skipped shift the streams against the positions, too. */
bool loader_rows_are_exchanged(const struct loader *l)
{
    uint64_t readers = l->split.readers, shift = l->first_row - l->first_position;
    return loader_rows_have_streams(l) && readers > 1 &&
           (l->order->num_streams % readers || l->skips.count || shift % readers);
}

uint64_t loader_rows_reader(const struct loader *l, uint64_t position)
{
    if (!loader_rows_are_exchanged(l)) return row_split_reader(&l->split, position);
    return loader_rows_number(l, position) % l->order->num_streams % l->split.readers;
}

static enum status read_row(struct loader *l, uint64_t number, struct token_row *tokens)
{
    enum status st = l->order->kind->row(l->order, number, &l->tokens, tokens);
    TRY(bad_records_stop(st, "data.on_bad_record = \"skip\""));
    return STATUS_OK;
}

/* Reads the next row that is this reader's to read. */
static enum status read_next(struct loader *l, struct loader_row *r)
{
    struct order *o = l->order;
    uint64_t max_rows = (uint64_t)l->options.max_rows, reader = (uint64_t)l->options.reader;
    while (loader_rows_reader(l, l->next_read) != reader) l->next_read++;
    r->number = loader_rows_number(l, l->next_read);
    r->tokens.filled = 0;
    l->tokens.bad = loader_skips_bad(l) ? &r->bad : NULL;
    if (!max_rows || r->number < max_rows) TRY(read_row(l, r->number, &r->tokens));
    TRY(source_tokens_check(&l->tokens));
    /* a last row with only the overlapping token counts as empty */
    r->empty = l->options.once && r->tokens.filled <= !l->masked;
    if (!loader_rows_are_exchanged(l)) loader_rows_build(l, r);
    o->kind->save(o, r->number % o->num_streams, r->cursor);
    l->next_read++;
    return STATUS_OK;
}

static void *run_prefetch_thread(void *context)
{
    struct loader *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->failure.status) {
        if (l->num_built - l->num_taken >= l->ring_size) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        uint64_t k = l->num_built;
        pthread_mutex_unlock(&l->lock);
        enum status st = read_next(l, &l->ring[k % l->ring_size]);
        pthread_mutex_lock(&l->lock);
        if (!status_save(&l->failure, st)) l->num_built++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

enum status loader_rows_start(struct loader *l)
{
    bool reads =
        !loader_rows_are_exchanged(l) || (uint64_t)l->options.reader < l->order->num_streams;
    if (!l->options.prefetch_rows || l->running || !reads) return STATUS_OK;
    l->stop = false;
    TRY(thread_start_background(&l->thread, run_prefetch_thread, l));
    l->running = true;
    return STATUS_OK;
}

void loader_rows_stop(struct loader *l)
{
    if (!l->running) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = false;
}

/* The next entry of the ring, from the prefetch thread if it runs. */
static enum status wait_row(struct loader *l, struct loader_row **row)
{
    uint64_t k = l->num_taken;
    *row = &l->ring[k % l->ring_size];
    if (!l->running && l->num_built > k) return STATUS_OK; /* the row at the end of a pass */
    if (!l->running) { /* a failure lasts: half a row has been read */
        if (!l->failure.status) status_save(&l->failure, read_next(l, *row));
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

enum status loader_rows_take(struct loader *l, struct loader_row **row)
{
    size_t ints = l->order->cursor_ints;
    TRY(wait_row(l, row));
    struct loader_row *r = *row;
    if (loader_skips_bad(l)) deliver_bad_records(l, r);
    if (r->empty) return STATUS_OK; /* it stays in the ring: no row follows */
    memcpy(l->cursors + r->number % l->order->num_streams * ints, r->cursor,
           ints * sizeof *l->cursors);
    return STATUS_OK;
}

void loader_rows_release(struct loader *l)
{
    if (l->running) pthread_mutex_lock(&l->lock);
    l->num_taken++;
    if (l->running) {
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
}

void loader_rows_alloc_cursors(struct loader *l)
{
    size_t ints = loader_num_cursor_ints(l);
    free(l->cursors), free(l->marked);
    l->cursors = heap(ints * sizeof *l->cursors), l->marked = heap(ints * sizeof *l->marked);
    for (uint64_t stream = 0; stream < l->order->num_streams; stream++)
        l->order->kind->save(l->order, stream, l->cursors + stream * l->order->cursor_ints);
}
