// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>

const char *transfer_name(enum transfer_kind k)
{
    static const char *const names[] = {
#define X(name, text) #name,
        TRANSFER_LIST(X)
#undef X
    };
    return names[k];
}

enum { PIECES = 1 << 22, LEAST_PIECE = 1 << 14 }; /* elements of all ranks' pieces; of one */

size_t transfer_piece(size_t count, int size)
{
    size_t piece = PIECES / (size_t)size;
    if (piece < LEAST_PIECE) piece = LEAST_PIECE;
    return count < piece ? count : piece;
}

size_t transfer_share(size_t count, int size, int rank, size_t *begin)
{
    size_t each = (count + (size_t)size - 1) / (size_t)size, first = (size_t)rank * each;
    *begin = first < count ? first : count;
    return count - *begin < each ? count - *begin : each;
}

size_t transfer_work_bytes(enum transfer_kind kind, enum dtype dtype, size_t count, int size)
{
    size_t begin;
    if (size == 1 || (kind != TRANSFER_reduce_scatter && kind != TRANSFER_all_reduce)) return 0;
    if (kind == TRANSFER_all_reduce) count = transfer_share(count, size, 0, &begin);
    return transfer_piece(count, size) * (size_t)size * dtype_bytes(dtype);
}

enum status comm_split(const struct comm *c, int color, int key, struct comm *out)
{
    TRY(c->transport->split(c, color, key, out));
    return STATUS_OK;
}

void comm_release(struct comm *c)
{
    if (c->transport) c->transport->release(c);
    *c = (struct comm){0};
}

enum status comm_expect(const struct comm *c, const struct message *sends, int num_sends,
                        const struct message *receives, int num_receives)
{
    if (c->size == 1 || !c->transport || !c->transport->expect) return STATUS_OK;
    TRY(c->transport->expect(c, sends, num_sends, receives, num_receives));
    return STATUS_OK;
}

enum status comm_lend(const struct comm *c, void *at, size_t bytes)
{
    if (!at || c->size == 1 || !c->transport || !c->transport->lend) return STATUS_OK;
    TRY(c->transport->lend(c, at, bytes));
    return STATUS_OK;
}

/* Bytes this rank receives from others. */
static size_t bytes_received(const struct comm *c, const struct transfer *t)
{
    size_t others = (size_t)c->size - 1, each = dtype_bytes(t->dtype), bytes = t->count * each;
    size_t begin, share = transfer_share(t->count, c->size, c->rank, &begin);
    switch (t->kind) {
    case TRANSFER_all_gather:
    case TRANSFER_reduce_scatter: return others * bytes;
    case TRANSFER_all_reduce: return others * share * each + bytes - share * each;
    case TRANSFER_broadcast: return c->rank == t->peer ? 0 : bytes;
    case TRANSFER_receive: return bytes;
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return 0;
}

enum status comm_start(const struct comm *c, struct transfer *t)
{
    t->comm = c, t->under_way = NULL;
    t->began_s = t->over_s = 0;
    if (c->counts) {
        size_t bytes = bytes_received(c, t);
        c->counts->calls[t->kind]++;
        c->counts->bytes[t->kind] += bytes;
        struct comm_watch *watch = c->counts->watch;
        if (watch) t->began_s = clock_monotonic_s();
        if (watch) watch->start(watch, c, t, bytes);
    }
    if (c->transport) TRY(c->transport->start(c, t));
    return STATUS_OK;
}

enum status comm_wait(struct transfer *t)
{
    const struct comm_counts *counts = t->comm->counts;
    if (t->comm->transport) TRY(t->comm->transport->wait(t));
    if (counts && counts->watch) counts->watch->wait(counts->watch, t);
    return STATUS_OK;
}

enum status comm_run(const struct comm *c, struct transfer *t)
{
    TRY(comm_start(c, t));
    TRY(comm_wait(t));
    return STATUS_OK;
}

enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count)
{
    if (how == REDUCE_SUM) {
        TRY(c->transport->reduce(c, REDUCE_SUM, values, count));
        return STATUS_OK;
    }
    /* Transports differ in what the maximum of a NaN is, so it travels on its own. */
    enum { PIECE_VALUES = 64 };
    for (size_t at = 0; at < count; at += PIECE_VALUES) {
        double pairs[PIECE_VALUES][2];
        size_t n = count - at < PIECE_VALUES ? count - at : PIECE_VALUES;
        for (size_t i = 0; i < n; i++) {
            bool is_nan = isnan(values[at + i]);
            pairs[i][0] = is_nan ? -INFINITY : values[at + i], pairs[i][1] = is_nan;
        }
        TRY(c->transport->reduce(c, REDUCE_MAX, pairs[0], 2 * n));
        for (size_t i = 0; i < n; i++) values[at + i] = pairs[i][1] > 0 ? (double)NAN : pairs[i][0];
    }
    return STATUS_OK;
}

static const char news[] = "rank %d failed: ";

enum status comm_agree(const struct comm *c, enum status mine)
{
    /* The largest is the lowest failed rank's: its distance from the end first, then its status. */
    double worst = mine ? (double)(c->size - c->rank) * STATUS_COUNT + (double)mine : 0;
    enum status st = c->transport->reduce(c, REDUCE_MAX, &worst, 1);
    if (st) return mine ? mine : st;
    if (!(worst > 0)) return STATUS_OK;
    int first = c->size - (int)worst / STATUS_COUNT;
    enum status theirs = (enum status)((int)worst % STATUS_COUNT);
    char text[64];
    snprintf(text, sizeof text, news, first);
    enum status told = mine ? mine : theirs;
    if (first != c->rank) status_fail(told, __FILE__, __LINE__, "%s%s", text, status_text(theirs));
    if (c->size > 1) status_share();
    return told;
}

bool comm_failed_elsewhere(void)
{
    int rank, end = 0;
    return sscanf(status_message(), "rank %d failed: %n", &rank, &end) == 1 && end > 0;
}

/* The largest power of two below n. */
static int half_of(int n)
{
    int half = 1;
    while (2 * half < n) half *= 2;
    return half;
}

enum { PIECE = 512, DEEPEST = 32 }; /* elements summed at a time; halvings of any int */

/* sum[depth] = the sum of parts[0..size) from element `at` on; deeper rows are working memory. */
static void sum_piece(enum dtype dtype, const void *const *parts, int size, size_t at, size_t n,
                      float sum[][PIECE])
{
    if (size == 1) {
        const float *f32 = (const float *)parts[0] + at;
        const bf16 *half = (const bf16 *)parts[0] + at;
        for (size_t i = 0; i < n; i++) sum[0][i] = dtype == F32 ? f32[i] : bf16_to_f32(half[i]);
        return;
    }
    int half = half_of(size);
    sum_piece(dtype, parts, half, at, n, sum);
    sum_piece(dtype, parts + half, size - half, at, n, sum + 1);
    for (size_t i = 0; i < n; i++) sum[0][i] += sum[1][i];
}

void comm_sum(enum dtype dtype, const void *const *parts, int size, size_t count, void *out)
{
    float sum[DEEPEST][PIECE];
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        sum_piece(dtype, parts, size, at, n, sum);
        for (size_t i = 0; i < n; i++)
            if (dtype == F32)
                ((float *)out)[at + i] = sum[0][i];
            else
                ((bf16 *)out)[at + i] = bf16_from_f32(sum[0][i]);
    }
}

static double sum_doubles(const double *rows, int size, size_t count)
{
    if (size == 1) return rows[0];
    int half = half_of(size);
    return sum_doubles(rows, half, count) +
           sum_doubles(rows + (size_t)half * count, size - half, count);
}

void comm_sum_doubles(const double *rows, int size, size_t count, double *out)
{
    for (size_t i = 0; i < count; i++) out[i] = sum_doubles(rows + i, size, count);
}
