// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include "base/activity.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* --- the group of one --- */

static enum status self_split(const struct comm *c, int color, int key, struct comm *out)
{
    (void)c, (void)color, (void)key;
    *out = *comm_self();
    return STATUS_OK;
}

static void self_release(struct comm *c) { (void)c; }

static enum status self_start(const struct comm *c, struct transfer *t)
{
    (void)c;
    transfer_copy_to_own(t);
    return STATUS_OK;
}

static enum status self_wait(struct transfer *t)
{
    (void)t;
    return STATUS_OK;
}

static enum status self_gather(const struct comm *c, const void *mine, size_t bytes,
                               const void **all)
{
    (void)c, (void)bytes;
    *all = mine;
    return STATUS_OK;
}

const struct comm *comm_self(void)
{
    static const struct transport transport = {
        .name = "self",
        .split = self_split,
        .release = self_release,
        .start = self_start,
        .wait = self_wait,
        .gather = self_gather,
    };
    static const struct comm self = {.rank = 0, .size = 1, .transport = &transport};
    return &self;
}

/* --- groups and transfers --- */

/* The working thread begins to wait for the other ranks of the group, if there are any. */
static double begin_wait(const struct comm *c) { return c->size > 1 ? activity_begin_wait() : 0; }
static void end_wait(const struct comm *c, double begin_s)
{
    if (c->size > 1) activity_end_wait(begin_s);
}

enum status comm_split(const struct comm *c, int color, int key, struct comm *out)
{
    double begin_s = begin_wait(c);
    enum status st = c->transport->split(c, color, key, out);
    end_wait(c, begin_s);
    TRY(st);
    if (c->counts && out->counts) out->counts->is_checked = c->counts->is_checked;
    if (c->counts && out->counts) out->counts->name = c->counts->name;
    return STATUS_OK;
}

void comm_release(struct comm *c)
{
    if (c->transport) c->transport->release(c);
    *c = (struct comm){0};
}

enum status comm_declare_p2p(const struct comm *c, const struct p2p_message *sends, int num_sends,
                             const struct p2p_message *receives, int num_receives)
{
    if (c->size == 1 || !c->transport || !c->transport->declare_p2p) return STATUS_OK;
    TRY(c->transport->declare_p2p(c, sends, num_sends, receives, num_receives));
    return STATUS_OK;
}

enum status comm_register_memory(const struct comm *c, void *at, size_t bytes)
{
    if (!at || !c->transport || !c->transport->register_memory) return STATUS_OK;
    TRY(c->transport->register_memory(c, at, bytes));
    return STATUS_OK;
}

/* --- the sequence of collectives --- */

static enum status host_group(const struct comm *c, const struct comm **host)
{
    for (*host = c; (*host)->transport->host;) TRY((*host)->transport->host(*host, host));
    return STATUS_OK;
}

static enum status gather_on_host(const struct comm *c, const void *mine, size_t bytes,
                                  const void **all)
{
    const struct comm *host;
    TRY(host_group(c, &host));
    double begin_s = begin_wait(c);
    enum status st = host->transport->gather(host, mine, bytes, all);
    end_wait(c, begin_s);
    TRY(st);
    return STATUS_OK;
}

const char *comm_name(const struct comm *c)
{
    return c->counts && c->counts->name ? c->counts->name : "world";
}

void comm_describe(const struct collective *x, char *text, size_t size)
{
    const struct transfer t = {.dtype = x->dtype, .is_bytes = x->is_bytes};
    int end = snprintf(text, size, "%s of %llu %s", transfer_name(x->kind),
                       (unsigned long long)x->count, transfer_element_name(&t));
    if (x->kind == TRANSFER_broadcast && end >= 0 && (size_t)end < size)
        snprintf(text + end, size - (size_t)end, " from its rank %d", x->root);
}

static bool is_same_collective(const struct collective *a, const struct collective *b)
{
    return a->number == b->number && a->count == b->count && a->kind == b->kind &&
           a->dtype == b->dtype && a->is_bytes == b->is_bytes && a->root == b->root &&
           a->reduce == b->reduce;
}

/* Compares a collective with what the other ranks start. */
static enum status compare_with_ranks(const struct comm *c, const struct collective *mine)
{
    const void *all;
    TRY(gather_on_host(c, mine, sizeof *mine, &all));
    const struct collective *of = all;
    for (int r = 1; r < c->size; r++) {
        char first[128], other[128];
        if (is_same_collective(&of[0], &of[r])) continue;
        comm_describe(&of[0], first, sizeof first), comm_describe(&of[r], other, sizeof other);
        FAIL(COMM,
             "ranks of group %s start different collectives: rank %d its number %llu, %s; rank %d "
             "its number %llu, %s",
             comm_name(c), of[0].world_rank, (unsigned long long)of[0].number, first,
             of[r].world_rank, (unsigned long long)of[r].number, other);
    }
    return STATUS_OK;
}

/* Records the next collective of the group. */
static enum status enter(const struct comm *c, struct collective next)
{
    struct comm_counts *counts = c->counts;
    if (!counts || c->size == 1) return STATUS_OK;
    next.world_rank = log_rank() < 0 ? c->rank : log_rank();
    next.number = atomic_load_explicit(&counts->collectives, memory_order_relaxed) + 1;
    const uint64_t words[] = {(uint64_t)next.kind | (uint64_t)next.dtype << 8 |
                                  (uint64_t)next.is_bytes << 16 | (uint64_t)next.reduce << 24 |
                                  (uint64_t)(unsigned)next.root << 32,
                              next.count};
    counts->hash = checksum_hash64(counts->hash, words, sizeof words);
    counts->last = next;
    atomic_store_explicit(&counts->collectives, next.number, memory_order_relaxed);
    if (counts->is_checked && c->transport) TRY(compare_with_ranks(c, &next));
    return STATUS_OK;
}

/* The same for a transfer.  A message between two ranks is not a collective. */
static enum status enter_transfer(const struct comm *c, const struct transfer *t)
{
    if (c->size > 1)
        activity_start_collective(t->kind, t->count * transfer_element_bytes(t), c->size);
    if (t->kind == TRANSFER_send || t->kind == TRANSFER_receive) return STATUS_OK;
    TRY(enter(c, (struct collective){.count = t->count,
                                     .kind = t->kind,
                                     .dtype = t->is_bytes ? F32 : t->dtype,
                                     .is_bytes = t->is_bytes,
                                     .root = t->kind == TRANSFER_broadcast ? t->peer : 0}));
    return STATUS_OK;
}

/* Bytes that this rank receives from others. */
static size_t bytes_received(const struct comm *c, const struct transfer *t)
{
    size_t others = (size_t)c->size - 1, each = transfer_element_bytes(t), bytes = t->count * each;
    size_t begin, shard = transfer_shard(t->count, c->size, c->rank, &begin);
    switch (t->kind) {
    case TRANSFER_all_gather:
    case TRANSFER_reduce_scatter: return others * bytes;
    case TRANSFER_all_reduce: return others * shard * each + bytes - shard * each;
    case TRANSFER_broadcast: return c->rank == t->peer ? 0 : bytes;
    case TRANSFER_shift: return c->size > 1 ? bytes : 0;
    case TRANSFER_all_to_all:
        return (transfer_part(t->receives, c->size) - t->receives[c->rank]) * each;
    case TRANSFER_receive: return bytes;
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return 0;
}

enum status comm_start(const struct comm *c, struct transfer *t)
{
    BUG_IF(t->is_bytes && (t->kind == TRANSFER_reduce_scatter || t->kind == TRANSFER_all_reduce));
    BUG_IF(t->kind == TRANSFER_all_to_all && t->sends[c->rank] != t->receives[c->rank]);
    t->comm = c, t->in_flight = NULL;
    t->started_s = t->ended_s = 0;
    TRY(enter_transfer(c, t));
    if (c->counts) {
        size_t bytes = bytes_received(c, t);
        c->counts->calls[t->kind]++;
        c->counts->bytes[t->kind] += bytes;
        struct comm_observer *observer = c->counts->observer;
        if (observer) t->started_s = clock_monotonic_s();
        if (observer) observer->start(observer, c, t, bytes);
    }
    if (c->transport) TRY(c->transport->start(c, t));
    return STATUS_OK;
}

enum status comm_wait(struct transfer *t)
{
    const struct comm_counts *counts = t->comm->counts;
    double begin_s = begin_wait(t->comm);
    enum status st = t->comm->transport ? t->comm->transport->wait(t) : STATUS_OK;
    end_wait(t->comm, begin_s);
    TRY(st);
    if (counts && counts->observer) counts->observer->wait(counts->observer, t);
    return STATUS_OK;
}

enum status comm_run(const struct comm *c, struct transfer *t)
{
    TRY(comm_start(c, t));
    TRY(comm_wait(t));
    return STATUS_OK;
}

/* --- collectives of host memory --- */

/* The numbers of all ranks, which the caller reduces. */
static enum status gather(const struct comm *c, enum reduction how, const void *mine, size_t bytes,
                          const void **all)
{
    if (c->size > 1) activity_start_collective(TRANSFER_all_reduce, bytes, c->size);
    TRY(enter(c,
              (struct collective){
                  .count = bytes, .kind = TRANSFER_all_reduce, .is_bytes = true, .reduce = how}));
    TRY(gather_on_host(c, mine, bytes, all));
    return STATUS_OK;
}

/* Host memory, on a transport that carries it; uncounted, since it is not the model's traffic. */
static enum status run_uncounted(const struct comm *c, struct transfer *t)
{
    const struct comm *host;
    TRY(enter_transfer(c, t));
    TRY(host_group(c, &host));
    t->comm = host;
    TRY(host->transport->start(host, t));
    double begin_s = begin_wait(host);
    enum status st = host->transport->wait(t);
    end_wait(host, begin_s);
    TRY(st);
    return STATUS_OK;
}

static double reduce_double(enum reduction how, double a, double b)
{
    if (isnan(a) || isnan(b)) return (double)NAN;
    return (how == REDUCE_MAX ? b > a : b < a) ? b : a;
}

enum status comm_all_reduce(const struct comm *c, enum reduction how, double *values, size_t count)
{
    const void *all;
    TRY(gather(c, how, values, count * sizeof *values, &all));
    if (how == REDUCE_SUM) {
        comm_sum_doubles(all, c->size, count, values);
        return STATUS_OK;
    }
    for (size_t i = 0; i < count; i++) {
        const double *column = (const double *)all + i;
        double reduced = column[0];
        for (int r = 0; r < c->size; r++)
            reduced = reduce_double(how, reduced, column[(size_t)r * count]);
        values[i] = reduced;
    }
    return STATUS_OK;
}

static int64_t reduce_int64(enum reduction how, int64_t a, int64_t b)
{
    int64_t sum;
    if (how == REDUCE_MAX) return a > b ? a : b;
    if (how == REDUCE_MIN) return a < b ? a : b;
    BUG_IF(__builtin_add_overflow(a, b, &sum));
    return sum;
}

enum status comm_all_reduce_int64(const struct comm *c, enum reduction how, int64_t *values,
                                  size_t count)
{
    const void *all;
    TRY(gather(c, how, values, count * sizeof *values, &all));
    for (size_t i = 0; i < count; i++) {
        const int64_t *column = (const int64_t *)all + i;
        int64_t reduced = column[0];
        for (int r = 1; r < c->size; r++)
            reduced = reduce_int64(how, reduced, column[(size_t)r * count]);
        values[i] = reduced;
    }
    return STATUS_OK;
}

enum status comm_all_reduce_exact(const struct comm *c, struct exact_sum *sum)
{
    exact_sum_carry(sum);
    TRY(comm_all_reduce_int64(c, REDUCE_SUM, sum->ints, EXACT_SUM_INTS));
    return STATUS_OK;
}

enum status comm_all_gather_bytes(const struct comm *c, void *x, size_t bytes)
{
    struct transfer t = {TRANSFER_all_gather, .count = bytes, .x = x, .is_bytes = true};
    TRY(run_uncounted(c, &t));
    return STATUS_OK;
}

enum status comm_broadcast_bytes(const struct comm *c, int root, void *x, size_t bytes)
{
    struct transfer t = {TRANSFER_broadcast, .count = bytes, .x = x, .peer = root,
                         .is_bytes = true};
    TRY(run_uncounted(c, &t));
    return STATUS_OK;
}

/* --- agreement on failures --- */

/* A failure after which callers continue, such as DATA, must not hide DEVICE or COMM. */
static int64_t severity(enum status s) { return s == STATUS_DEVICE ? 2 : s == STATUS_COMM; }

enum status comm_agree(const struct comm *c, enum status mine)
{
    struct failure own = {0};
    /* The maximum is the most severe failure, of the lowest rank that knows its cause. */
    int64_t kind = 2 * severity(mine) + !status_is_remote();
    int64_t order = kind * (c->size + 1) + c->size - c->rank;
    int64_t code = mine ? order * STATUS_COUNT + (int64_t)mine : 0;
    status_save(&own, mine);
    enum status st = comm_all_reduce_int64(c, REDUCE_MAX, &code, 1);
    if (st) return mine ? status_restore(&own) : st;
    if (!code) return STATUS_OK;
    int first = c->size - (int)(code / STATUS_COUNT % (c->size + 1));
    st = (enum status)(code % STATUS_COUNT);
    if (mine && mine != st && !status_is_remote()) /* nothing else reports it */
        log_line(LOG_WARN, "%s (rank %d failed, too: %s)", own.message, first, status_text(st));
    if (first != c->rank) {
        status_fail(st, __FILE__, __LINE__, "rank %d failed: %s", first, status_text(st));
        status_mark_remote();
    }
    if (c->size > 1) status_mark_shared();
    return st;
}

bool comm_logs_failure(const struct comm *c, enum status s)
{
    return c->rank == 0 || (s != STATUS_COMM && !status_is_remote());
}

/* --- sums in the order of comm.h --- */

/* The largest power of two below n. */
static int half_of(int n)
{
    int half = 1;
    while (2 * half < n) half *= 2;
    return half;
}

enum { SUM_BLOCK = 512, MAX_DEPTH = 32 }; /* elements summed at a time; halvings of any int */

/* Elements [at, at + n) of each part. */
struct sum_block {
    enum dtype dtype;
    size_t at, n;
};

/* The elements of the block as f32: in place, or converted to `to`. */
static const float *block_as_f32(const struct sum_block *b, const void *part, float *to)
{
    const bf16 *half = (const bf16 *)part + b->at;
    if (b->dtype == F32) return (const float *)part + b->at;
    for (size_t i = 0; i < b->n; i++) to[i] = bf16_to_f32(half[i]);
    return to;
}

/* The sum of the block over parts[0..size): in `to`, unless it is a part; the rows of `space` are
 * working memory. */
static const float *sum_parts(const struct sum_block *b, const void *const *parts, int size,
                              float *to, float space[][SUM_BLOCK])
{
    if (size == 1) return block_as_f32(b, parts[0], to);
    int half = half_of(size);
    const float *x = sum_parts(b, parts, half, space[0], space + 1);
    const float *y = sum_parts(b, parts + half, size - half, space[1], space + 2);
#pragma omp simd /* `to` may be one of the parts */
    for (size_t i = 0; i < b->n; i++) to[i] = x[i] + y[i];
    return to;
}

void comm_sum(enum dtype dtype, const void *const *parts, int size, size_t count, void *out)
{
    float space[2 * MAX_DEPTH][SUM_BLOCK];
    for (size_t at = 0; at < count; at += SUM_BLOCK) {
        size_t n = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
        float *to = dtype == F32 ? (float *)out + at : space[0];
        const float *sum = sum_parts(&(struct sum_block){dtype, at, n}, parts, size, to, space + 1);
        bf16 *half = (bf16 *)out + at;
        if (sum != to && dtype == F32) memmove(to, sum, n * sizeof *sum);
        for (size_t i = 0; i < n && dtype == BF16; i++) half[i] = bf16_from_f32(sum[i]);
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
