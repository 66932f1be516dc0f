// SPDX-License-Identifier: Apache-2.0
#include "comm/contract.h"

#include "base/text.h"
#include "comm/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element i of rank r's contribution; the bits of a sum depend on the order of addition. */
static float value(int r, size_t i) { return sinf((float)(r * 1009 + (int)i * 31 + 1)) * 3; }

static void *filled(enum dtype dtype, int r, size_t first, size_t n)
{
    float *x = heap((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        if (dtype == F32)
            x[i] = value(r, first + i);
        else
            ((bf16 *)x)[i] = bf16_from_f32(value(r, first + i));
    return x;
}

static double get(enum dtype dtype, const void *x, size_t i)
{
    return dtype == F32 ? (double)((const float *)x)[i] : (double)bf16_to_f32(((const bf16 *)x)[i]);
}

struct sizes {
    enum dtype dtype;
    size_t count;
};

static enum status all_gather(const struct comm *c, const struct sizes *s)
{
    size_t bytes = s->count * dtype_bytes(s->dtype);
    char *x = heap((size_t)c->size * bytes + 1);
    void *mine = filled(s->dtype, c->rank, 0, s->count);
    memcpy(x + (size_t)c->rank * bytes, mine, bytes);
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_gather, s->dtype, s->count, .x = x}));
    for (int r = 0; r < c->size; r++) {
        void *theirs = filled(s->dtype, r, 0, s->count);
        RANK_CHECK(!memcmp(x + (size_t)r * bytes, theirs, bytes));
        free(theirs);
    }
    free(mine), free(x);
    return STATUS_OK;
}

static enum status reduce_scatter(const struct comm *c, const struct sizes *s)
{
    size_t size = (size_t)c->size, first = (size_t)c->rank * s->count;
    void *x = filled(s->dtype, c->rank, 0, size * s->count);
    void *own = filled(s->dtype, 0, 0, s->count);
    struct transfer t = {TRANSFER_reduce_scatter, s->dtype, s->count, .x = x, .own = own};
    t.work = heap(transfer_work_bytes(t.kind, s->dtype, s->count, c->size) + 1);
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < s->count; i++) {
        double want = 0;
        for (int r = 0; r < c->size; r++) {
            void *theirs = filled(s->dtype, r, first + i, 1);
            want += get(s->dtype, theirs, 0);
            free(theirs);
        }
        RANK_CHECK(fabs(get(s->dtype, own, i) - want) < (s->dtype == F32 ? 1e-5 : 0.06));
    }
    free(t.work), free(own), free(x);
    return STATUS_OK;
}

static enum status all_reduce(const struct comm *c, const struct sizes *s)
{
    void *x = filled(s->dtype, c->rank, 0, s->count);
    struct transfer t = {TRANSFER_all_reduce, s->dtype, s->count, .x = x};
    t.work = heap(transfer_work_bytes(t.kind, s->dtype, s->count, c->size) + 1);
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < s->count; i++) {
        double want = 0;
        for (int r = 0; r < c->size; r++) {
            void *theirs = filled(s->dtype, r, i, 1);
            want += get(s->dtype, theirs, 0);
            free(theirs);
        }
        RANK_CHECK(fabs(get(s->dtype, x, i) - want) < (s->dtype == F32 ? 1e-5 : 0.06));
    }
    free(t.work), free(x);
    return STATUS_OK;
}

static enum status broadcast(const struct comm *c, const struct sizes *s)
{
    for (int root = 0; root < c->size; root++) {
        void *x = filled(s->dtype, c->rank, 0, s->count),
             *want = filled(s->dtype, root, 0, s->count);
        TRY(comm_run(
            c, &(struct transfer){TRANSFER_broadcast, s->dtype, s->count, .x = x, .peer = root}));
        RANK_CHECK(!memcmp(x, want, s->count * dtype_bytes(s->dtype)));
        free(x), free(want);
    }
    return STATUS_OK;
}

static enum status shift(const struct comm *c, const struct sizes *s)
{
    size_t bytes = s->count * dtype_bytes(s->dtype);
    int before = (c->rank + c->size - 1) % c->size;
    void *x = filled(s->dtype, c->rank, 0, s->count), *want = filled(s->dtype, before, 0, s->count);
    void *got[2] = {heap(bytes + 1), heap(bytes + 1)};
    struct transfer t[] = {{TRANSFER_shift, s->dtype, s->count, .x = x, .own = got[0]},
                           {TRANSFER_shift, s->dtype, s->count, .x = x, .own = got[1]}};
    for (int i = 0; i < 2; i++) TRY(comm_start(c, &t[i]));
    for (int i = 0; i < 2; i++) TRY(comm_wait(&t[i]));
    for (int i = 0; i < 2; i++) RANK_CHECK(!memcmp(got[i], want, bytes));
    free(x), free(want), free(got[0]), free(got[1]);
    return STATUS_OK;
}

/* Rank r sends (2 r + to) % 4 times `count` elements to rank `to`, some of them none. */
static enum status all_to_all(const struct comm *c, const struct sizes *s)
{
    size_t sizes[2][16], each = dtype_bytes(s->dtype), all = 0;
    RANK_CHECK(c->size <= 16);
    for (int r = 0; r < c->size; r++) {
        sizes[0][r] = (size_t)((2 * c->rank + r) % 4) * s->count;
        sizes[1][r] = (size_t)((2 * r + c->rank) % 4) * s->count;
        for (int to = 0; to < c->size; to++) all += (size_t)((2 * r + to) % 4) * s->count;
    }
    char *x = filled(s->dtype, c->rank, 0, transfer_part(sizes[0], c->size));
    char *own = filled(s->dtype, 99, 0, transfer_part(sizes[1], c->size)), *at = own;
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_to_all, s->dtype, all, .x = x, .own = own,
                                       .sends = sizes[0], .receives = sizes[1]}));
    for (int r = 0; r < c->size; r++) {
        size_t first = 0;
        for (int to = 0; to < c->rank; to++) first += (size_t)((2 * r + to) % 4) * s->count;
        char *theirs = filled(s->dtype, r, first, sizes[1][r]);
        RANK_CHECK(!memcmp(at, theirs, sizes[1][r] * each));
        at += sizes[1][r] * each;
        free(theirs);
    }
    free(x), free(own);
    return STATUS_OK;
}

/* Each rank sends to the next; a second message with another tag is received first. */
static enum status sends_to_next(const struct comm *c, const struct sizes *s)
{
    if (c->size == 1) return STATUS_OK;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    void *x = filled(s->dtype, c->rank, 0, s->count), *want = filled(s->dtype, before, 0, s->count);
    void *got = heap(s->count * sizeof(float) + 1);
    float sent = (float)c->rank, received = -1;
    struct transfer out = {TRANSFER_send, s->dtype, s->count, .x = x, .peer = next, .tag = 1};
    struct transfer also = {TRANSFER_send, F32, 1, .x = &sent, .peer = next, .tag = 2};
    TRY(comm_start(c, &out));
    TRY(comm_start(c, &also));
    TRY(comm_run(
        c, &(struct transfer){TRANSFER_receive, F32, 1, .x = &received, .peer = before, .tag = 2}));
    TRY(comm_run(c, &(struct transfer){TRANSFER_receive, s->dtype, s->count, .x = got,
                                       .peer = before, .tag = 1}));
    TRY(comm_wait(&also));
    TRY(comm_wait(&out));
    RANK_CHECK(received == (float)before);
    RANK_CHECK(!memcmp(got, want, s->count * dtype_bytes(s->dtype)));
    free(x), free(want), free(got);
    return STATUS_OK;
}

static enum status with_every_size(const struct comm *c,
                                   enum status (*body)(const struct comm *c, const struct sizes *s))
{
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (size_t count = 0; count <= 1200; count = count * 3 + 1)
            TRY(body(c, &(struct sizes){dtype, count}));
    return STATUS_OK;
}

#define WITH_EVERY_SIZE(name, body)                                                                \
    enum status contract_##name(const struct comm *c, void *context)                               \
    {                                                                                              \
        (void)context;                                                                             \
        TRY(with_every_size(c, body));                                                             \
        return STATUS_OK;                                                                          \
    }
WITH_EVERY_SIZE(all_gathers_every_part, all_gather)
WITH_EVERY_SIZE(reduce_scatters_sums, reduce_scatter)
WITH_EVERY_SIZE(all_reduces_sums, all_reduce)
WITH_EVERY_SIZE(broadcasts_from_any_root, broadcast)
WITH_EVERY_SIZE(shifts_around_the_ring, shift)
WITH_EVERY_SIZE(sends_what_each_rank_has_for_each, all_to_all)
WITH_EVERY_SIZE(sends_and_receives_by_tag, sends_to_next)

/* Sums over pairs and then across pairs, compared with one sum over all four ranks. */
enum status contract_nested_sums_have_the_same_bits(const struct comm *c, void *context)
{
    enum { N = 999 };
    struct comm pair, across;
    float *flat = filled(F32, c->rank, 0, N), *nested = filled(F32, c->rank, 0, N), work[4 * N];
    (void)context;
    TRY(comm_split(c, c->rank / 2, c->rank, &pair));
    TRY(comm_split(c, c->rank % 2, c->rank, &across));
    RANK_CHECK(pair.size == 2 && pair.rank == c->rank % 2);
    RANK_CHECK(across.size == 2 && across.rank == c->rank / 2);
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_reduce, F32, N, .x = flat, .work = work}));
    TRY(comm_run(&pair,
                 &(struct transfer){TRANSFER_all_reduce, F32, N, .x = nested, .work = work}));
    TRY(comm_run(&across,
                 &(struct transfer){TRANSFER_all_reduce, F32, N, .x = nested, .work = work}));
    RANK_CHECK(!memcmp(flat, nested, N * sizeof *flat));
    comm_release(&pair), comm_release(&across);
    free(flat), free(nested);
    return STATUS_OK;
}

enum status contract_counts_the_bytes_each_rank_receives(const struct comm *c, void *context)
{
    float x[40] = {0}, work[40];
    size_t sizes[4] = {3, 3, 3, 3};
    (void)context;
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_gather, F32, 10, .x = x}));
    TRY(comm_run(
        c, &(struct transfer){TRANSFER_reduce_scatter, BF16, 10, .x = x, .own = x, .work = work}));
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_to_all, F32, 48, .x = x, .own = work,
                                       .sends = sizes, .receives = sizes}));
    RANK_CHECK(c->counts->bytes[TRANSFER_all_to_all] == 3 * 3 * 4); /* not its own part */
    RANK_CHECK(c->counts->calls[TRANSFER_all_gather] == 1);
    RANK_CHECK(c->counts->bytes[TRANSFER_all_gather] == 3 * 10 * 4);
    RANK_CHECK(c->counts->bytes[TRANSFER_reduce_scatter] == 3 * 10 * 2);
    return STATUS_OK;
}

/* Every kind that takes raw bytes, of lengths that are no multiple of any dtype's. */
enum status contract_transfers_raw_bytes(const struct comm *c, void *context)
{
    enum { N = 1021 };
    size_t size = (size_t)c->size, mine = (size_t)c->rank;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    unsigned char *x = heap(size * N), root[N], out[N], in[N], shifted[N], exchanged[N];
    size_t to_next[16] = {0}, from_before[16] = {0};
    (void)context;
    RANK_CHECK(c->size <= 16);
    to_next[next] = from_before[before] = N;
    memset(x + mine * N, 0x81 + c->rank, N);
    memset(root, 0xFF - c->rank, N), memset(out, 0xF1 - c->rank, N), memset(in, 0, N);
    struct transfer t[] = {
        {TRANSFER_all_gather, .count = N, .x = x, .is_bytes = true},
        {TRANSFER_broadcast, .count = N, .x = root, .peer = c->size - 1, .is_bytes = true},
        {TRANSFER_shift, .count = N, .x = out, .own = shifted, .is_bytes = true},
        {TRANSFER_all_to_all, .count = size * N, .x = out, .own = exchanged, .sends = to_next,
         .receives = from_before, .is_bytes = true},
        {TRANSFER_send, .count = N, .x = out, .peer = next, .tag = 3, .is_bytes = true},
        {TRANSFER_receive, .count = N, .x = in, .peer = before, .tag = 3, .is_bytes = true},
    };
    int num = sizeof t / sizeof *t;
    for (int i = 0; i < num; i++) TRY(comm_start(c, &t[i]));
    for (int i = 0; i < num; i++) TRY(comm_wait(&t[i]));
    for (size_t i = 0; i < N; i++) {
        for (size_t r = 0; r < size; r++) RANK_CHECK(x[r * N + i] == 0x81 + (int)r);
        RANK_CHECK(root[i] == 0xFF - (c->size - 1));
        RANK_CHECK(in[i] == 0xF1 - before && shifted[i] == in[i] && exchanged[i] == in[i]);
    }
    RANK_CHECK(c->counts->bytes[TRANSFER_all_gather] == (size - 1) * N);
    RANK_CHECK(c->counts->bytes[TRANSFER_receive] == N);
    RANK_CHECK(c->counts->bytes[TRANSFER_shift] == N);
    RANK_CHECK(c->counts->bytes[TRANSFER_all_to_all] == N);
    free(x);
    return STATUS_OK;
}

enum status contract_reduces_doubles(const struct comm *c, void *context)
{
    double sums[2] = {c->rank, 10}, max = c->rank == 1 ? 9 : 4, min = c->rank == 1 ? -9 : 4;
    (void)context;
    TRY(comm_all_reduce(c, REDUCE_SUM, sums, 2));
    RANK_CHECK(sums[0] == 3 && sums[1] == 30);
    TRY(comm_all_reduce(c, REDUCE_MAX, &max, 1));
    TRY(comm_all_reduce(c, REDUCE_MIN, &min, 1));
    RANK_CHECK(max == 9 && min == -9);
    struct exact_sum exact = {0};
    exact_sum_add(&exact, c->rank == 0 ? 1e300 : c->rank == 1 ? 1 : -1e300);
    TRY(comm_all_reduce_exact(c, &exact));
    RANK_CHECK(exact_sum_value(&exact) == 1);
    return STATUS_OK;
}

/* Of sizes that a double would round. */
enum status contract_reduces_integers_exactly(const struct comm *c, void *context)
{
    const int64_t big = (INT64_C(1) << 60) + 1, rank = c->rank, size = c->size;
    int64_t sums[3] = {c->rank == 1 ? big : 0, rank, -1}, max[2] = {big + rank, -big - rank},
            min[2] = {big + rank, -big - rank};
    (void)context;
    TRY(comm_all_reduce_int64(c, REDUCE_SUM, sums, 3));
    TRY(comm_all_reduce_int64(c, REDUCE_MAX, max, 2));
    TRY(comm_all_reduce_int64(c, REDUCE_MIN, min, 2));
    RANK_CHECK(sums[0] == big && sums[1] == size * (size - 1) / 2 && sums[2] == -size);
    RANK_CHECK(max[0] == big + size - 1 && max[1] == -big);
    RANK_CHECK(min[0] == big && min[1] == -big - (size - 1));
    TRY(comm_all_reduce_int64(c, REDUCE_SUM, NULL, 0));
    return STATUS_OK;
}

enum status contract_extremes_propagate_nan(const struct comm *c, void *context)
{
    for (int bad = 0; bad < c->size; bad++) {
        double max = c->rank == bad ? (double)NAN : 4, min = max;
        (void)context;
        TRY(comm_all_reduce(c, REDUCE_MAX, &max, 1));
        TRY(comm_all_reduce(c, REDUCE_MIN, &min, 1));
        RANK_CHECK(isnan(max) && isnan(min));
    }
    return STATUS_OK;
}

enum status contract_gathers_bytes_of_host_memory(const struct comm *c, void *context)
{
    enum { N = 13 };
    unsigned char *x = heap((size_t)c->size * N);
    (void)context;
    memset(x + c->rank * N, 0xC0 + c->rank, N);
    TRY(comm_all_gather_bytes(c, x, N));
    for (int i = 0; i < c->size * N; i++) RANK_CHECK(x[i] == 0xC0 + i / N);
    TRY(comm_all_gather_bytes(c, x, 0));
    free(x);
    return STATUS_OK;
}

enum status contract_broadcasts_bytes_of_host_memory(const struct comm *c, void *context)
{
    (void)context;
    for (int root = 0; root < c->size; root++) {
        unsigned char x[3] = {0xFF - (unsigned char)c->rank, 1, (unsigned char)c->rank};
        TRY(comm_broadcast_bytes(c, root, x, sizeof x));
        RANK_CHECK(x[0] == 0xFF - root && x[1] == 1 && x[2] == root);
    }
    return STATUS_OK;
}

/* Ranks 2 and 3 fail; `first` is the rank whose failure all report. */
static enum status agree_on(const struct comm *c, enum status two, enum status three, int first)
{
    enum status mine = STATUS_OK, worst = first == 2 ? two : three;
    char theirs[128];
    snprintf(theirs, sizeof theirs, "rank %d failed: %s", first, status_text(worst));
    if (c->rank == 2) mine = status_fail(two, "x.c", 1, "the seventh row is bad");
    if (c->rank == 3) mine = status_fail(three, "x.c", 1, "this one too");
    const char *own = c->rank == 2 ? "the seventh row is bad" : "this one too";
    RANK_CHECK(comm_agree(c, mine) == worst && status_is_shared());
    RANK_CHECK(status_is_remote() == (c->rank != first));
    RANK_CHECK(!strcmp(status_message(), c->rank == first ? own : theirs));
    status_prefix(worst, "step 3");
    RANK_CHECK(status_is_remote() == (c->rank != first));
    RANK_CHECK(comm_agree(c, worst) == worst); /* a caller may agree again */
    RANK_CHECK(status_is_remote() == (c->rank != first));
    RANK_CHECK(strstr(status_message(), c->rank == first ? own : theirs));
    return STATUS_OK;
}

enum status contract_agrees_on_the_most_severe_failure(const struct comm *c, void *context)
{
    static const struct {
        enum status two, three;
        int first;
    } rows[] = {{STATUS_DATA, STATUS_DEVICE, 3},   {STATUS_DATA, STATUS_COMM, 3},
                {STATUS_COMM, STATUS_DEVICE, 3},   {STATUS_DEVICE, STATUS_COMM, 2},
                {STATUS_DEVICE, STATUS_DEVICE, 2}, {STATUS_DATA, STATUS_HANG, 2}};
    (void)context;
    TRY(comm_agree(c, STATUS_OK));
    for (enum status kind = 1; kind < STATUS_COUNT; kind++) TRY(agree_on(c, kind, kind, 2));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TRY(agree_on(c, rows[i].two, rows[i].three, rows[i].first));
    return STATUS_OK;
}

/* Integers, so that sums over a few ranks are exact. */
static float integer(int r, size_t i) { return (float)(r + 1) * (float)(i % 1000); }

static float *filled_with_integers(int r, size_t count)
{
    float *x = heap(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = integer(r, i);
    return x;
}

/* Sums of several chunks, the last one short. */
enum status contract_sums_more_than_a_chunk(const struct comm *c, void *context)
{
    size_t size = (size_t)c->size, count = 2 * transfer_chunk(SIZE_MAX, c->size) + 5;
    float times = (float)(c->size * (c->size + 1) / 2);
    float *x = filled_with_integers(c->rank, size * count);
    struct transfer t = {TRANSFER_reduce_scatter, F32, count, .x = x, .own = x};
    (void)context;
    t.own = x + (size_t)c->rank * count;
    t.work = heap(transfer_work_bytes(t.kind, F32, count, c->size));
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)c->rank * count + i;
        RANK_CHECK(x[at] == times * integer(0, at));
    }
    for (size_t i = 0; i < size * count; i++) x[i] = integer(c->rank, i);
    t = (struct transfer){TRANSFER_all_reduce, F32, size * count - 3, .x = x, .work = t.work};
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < size * count - 3; i++) RANK_CHECK(x[i] == times * integer(0, i));
    for (size_t i = size * count - 3; i < size * count; i++)
        RANK_CHECK(x[i] == integer(c->rank, i));
    free(t.work), free(x);
    return STATUS_OK;
}

/* All kinds at once, waited for in the reverse order of their starts. */
enum status contract_many_transfers_are_in_flight_at_once(const struct comm *c, void *context)
{
    enum { ROUNDS = 100, N = 257 };
    size_t size = (size_t)c->size;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    float sum = (float)(c->size * (c->size + 1) / 2);
    float *parts = heap(size * N * sizeof *parts), *sums = heap(size * N * sizeof *sums);
    float *work[2] = {heap(size * N * sizeof *sums), heap(size * N * sizeof *sums)};
    (void)context;
    for (int round = 0; round < ROUNDS; round++) {
        float mine = (float)(c->rank + 1), own[N], all[N], out[N], in[N], root[N];
        for (size_t i = 0; i < N; i++) {
            parts[(size_t)c->rank * N + i] = mine + (float)round;
            all[i] = out[i] = root[i] = mine * (float)(round + 1);
        }
        for (size_t i = 0; i < size * N; i++) sums[i] = mine * (float)(round + 2);
        struct transfer t[] = {
            {TRANSFER_all_gather, F32, N, .x = parts},
            {TRANSFER_reduce_scatter, F32, N, .x = sums, .own = own, .work = work[0]},
            {TRANSFER_all_reduce, F32, N, .x = all, .work = work[1]},
            {TRANSFER_broadcast, F32, N, .x = root, .peer = round % c->size},
            {TRANSFER_send, F32, N, .x = out, .peer = next, .tag = round},
            {TRANSFER_receive, F32, N, .x = in, .peer = before, .tag = round},
        };
        int num = sizeof t / sizeof *t;
        for (int i = 0; i < num; i++) TRY(comm_start(c, &t[i]));
        for (int i = num; i-- > 0;) TRY(comm_wait(&t[i]));
        for (size_t i = 0; i < N; i++) {
            for (size_t r = 0; r < size; r++)
                RANK_CHECK(parts[r * N + i] == (float)r + 1 + (float)round);
            RANK_CHECK(own[i] == sum * (float)(round + 2));
            RANK_CHECK(all[i] == sum * (float)(round + 1));
            RANK_CHECK(root[i] == (float)((round % c->size + 1) * (round + 1)));
            RANK_CHECK(in[i] == (float)((before + 1) * (round + 1)));
        }
    }
    free(parts), free(sums), free(work[0]), free(work[1]);
    return STATUS_OK;
}

const struct contract contract[] = {
#define X(name, ranks) {#name, ranks, contract_##name},
    CONTRACT_LIST(X)
#undef X
        {NULL, 0, NULL},
};

enum status contract_run(const struct comm *world, const struct contract *lines)
{
    for (const struct contract *k = lines; k->name; k++)
        for (int size = k->ranks ? k->ranks : 2; size <= (k->ranks ? k->ranks : world->size);
             size++) {
            struct comm part;
            if (size > world->size) continue;
            TRY(comm_split(world, world->rank < size, world->rank, &part));
            if (world->rank < size) TRY(k->body(&part, NULL));
            TRY(comm_agree(world, STATUS_OK));
            comm_release(&part);
        }
    return STATUS_OK;
}
