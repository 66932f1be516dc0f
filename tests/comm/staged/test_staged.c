/* The contract of comm.h, for device memory that the host must not touch (strict_device.h). */
// SPDX-License-Identifier: Apache-2.0
#include "comm/staged/staged.h"

#include "backends/cpu/cpu.h"
#include "comm/contract.h"
#include "comm/lifted.h"
#include "comm/ranks.h"
#include "ops/update.h"
#include "tensor/strict_device.h"
#include "test.h"

/* A rank with a device: its queue is open while `body` runs. */
struct with_device {
    bool late, lifted;
    enum status (*body)(const struct comm *c, struct queue *queue);
    enum status (*contract)(const struct comm *c, void *context);
};

static enum status on_device(struct comm *c, struct queue *queue, const struct with_device *w)
{
    TRY(staged_wrap(c, queue));
    if (w->lifted) lifted_wrap(c, queue);
    if (w->body)
        TRY(w->body(c, queue));
    else
        TRY(w->contract(c, NULL));
    return STATUS_OK;
}

static enum status run_with_device(const struct comm *world, void *context)
{
    const struct with_device *w = context;
    struct queue *queue;
    struct comm c;
    TRY(cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, w->late);
    TRY(comm_split(world, 0, world->rank, &c));
    enum status st = on_device(&c, queue, w);
    comm_release(&c);
    strict_close(queue);
    cpu_queue_close(queue);
    return st;
}

enum { MAX_RANKS = 4 };

#define X(name, ranks)                                                                             \
    TEST(staged_##name)                                                                            \
    {                                                                                              \
        struct with_device w = {.lifted = true, .contract = contract_##name};                      \
        for (int size = ranks ? ranks : 2; size <= (ranks ? ranks : MAX_RANKS); size++)            \
            CHECK_STATUS(OK, ranks_run(size, run_with_device, &w));                                \
    }
CONTRACT_LIST(X)
#undef X

enum { N = 1000 };

/* Kernels before and after, ordered by the transfer alone. */
static enum status sums_between_kernels(const struct comm *c, struct queue *queue)
{
    struct arena own;
    float mine[N], sum[N], *x, *y, *z;
    TRY(arena_init(&own, 1 << 15, queue_device_allocator(queue)));
    x = arena_alloc(&own, N, sizeof *x), y = arena_alloc(&own, N, sizeof *y);
    z = arena_alloc(&own, N, sizeof *z);
    for (int i = 0; i < N; i++) mine[i] = (float)(c->rank + 1) * (float)i;
    TRY(queue_copy(queue, x, mine, sizeof mine));
    for (int round = 0; round < 3; round++) {
        struct transfer t = {TRANSFER_all_reduce, F32, N, .x = y};
        TRY(cast(&strict_ops, &(struct cast){.n = N}, &(struct cast_io){x, y}, queue));
        TRY(comm_run(c, &t));
        TRY(cast(&strict_ops, &(struct cast){.n = N, .accumulate = round > 0},
                 &(struct cast_io){y, z}, queue));
    }
    TRY(queue_copy(queue, sum, z, sizeof sum));
    for (int i = 0; i < N; i++) RANK_CHECK(sum[i] == 3 * 6 * (float)i);
    arena_release(&own);
    return STATUS_OK;
}

TEST(staged_transfers_are_ordered_with_kernels)
{
    struct with_device w = {.late = true, .body = sums_between_kernels};
    CHECK_STATUS(OK, ranks_run(3, run_with_device, &w));
}

struct counting_observer {
    struct comm_observer observer; /* first: callbacks cast it to this */
    size_t bytes;
    int started, waited;
};

static void count_start(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                        size_t bytes)
{
    (void)c, (void)t;
    ((struct counting_observer *)w)->bytes += bytes;
    ((struct counting_observer *)w)->started++;
}

static void count_wait(struct comm_observer *w, const struct transfer *t)
{
    (void)t;
    ((struct counting_observer *)w)->waited++;
}

static enum status counts_once(const struct comm *c, struct queue *queue)
{
    struct counting_observer seen = {.observer = {count_start, count_wait}};
    struct arena own;
    TRY(arena_init(&own, N * sizeof(float), queue_device_allocator(queue)));
    struct transfer t = {TRANSFER_all_gather, F32, N / 2, .x = own.base};
    c->counts->observer = &seen.observer;
    TRY(comm_run(c, &t));
    c->counts->observer = NULL;
    RANK_CHECK(seen.started == 1 && seen.waited == 1 && seen.bytes == N / 2 * sizeof(float));
    RANK_CHECK(c->counts->calls[TRANSFER_all_gather] == 1);
    RANK_CHECK(c->counts->bytes[TRANSFER_all_gather] == seen.bytes);
    arena_release(&own);
    return STATUS_OK;
}

TEST(staged_transfers_are_counted_and_observed_once)
{
    struct with_device w = {.body = counts_once};
    CHECK_STATUS(OK, ranks_run(2, run_with_device, &w));
}

TEST(staged_group_of_one_keeps_its_own_data)
{
    struct comm c = *comm_self();
    struct queue *queue;
    struct arena own;
    float host[4] = {1, 2, 3, 4};
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, true);
    CHECK_STATUS(OK, staged_wrap(&c, queue));
    CHECK_STATUS(OK, arena_init(&own, 3 * ARENA_ALIGN, queue_device_allocator(queue)));
    float *x = arena_alloc(&own, 4, sizeof *x), *sum = arena_alloc(&own, 4, sizeof *x);
    float *shifted = arena_alloc(&own, 4, sizeof *x);
    CHECK_STATUS(OK, queue_copy(queue, x, host, sizeof host));
    CHECK_STATUS(OK, comm_run(&c, &(struct transfer){TRANSFER_all_gather, F32, 4, .x = x}));
    CHECK_STATUS(OK, comm_run(&c, &(struct transfer){TRANSFER_all_reduce, F32, 4, .x = x}));
    CHECK_STATUS(
        OK, comm_run(&c, &(struct transfer){TRANSFER_reduce_scatter, F32, 4, .x = x, .own = sum}));
    CHECK_STATUS(OK,
                 comm_run(&c, &(struct transfer){TRANSFER_shift, F32, 4, .x = x, .own = shifted}));
    memset(host, 0, sizeof host);
    CHECK_STATUS(OK, queue_copy(queue, host, sum, sizeof host));
    CHECK(host[0] == 1 && host[3] == 4);
    memset(host, 0, sizeof host);
    CHECK_STATUS(OK, queue_copy(queue, host, shifted, sizeof host));
    CHECK(host[0] == 1 && host[3] == 4);
    comm_release(&c);
    arena_release(&own);
    strict_close(queue);
    cpu_queue_close(queue);
}

static enum status loses_a_rank(const struct comm *c, struct queue *queue)
{
    struct arena own;
    TRY(arena_init(&own, N * sizeof(float), queue_device_allocator(queue)));
    struct transfer t = {TRANSFER_all_reduce, F32, N, .x = own.base};
    enum status st = STATUS_OK;
    if (c->rank == 1) FAIL_OUT(IO, "the disk is gone");
    TRY_OUT(comm_run(c, &t));
out:
    arena_release(&own);
    return st;
}

TEST(staged_transfers_fail_when_a_rank_is_gone)
{
    struct with_device w = {.body = loses_a_rank};
    CHECK_STATUS(IO, ranks_run(2, run_with_device, &w));
}

/* The transfers of a transport that fails: records that staged_wrap's release leaves. */
static struct transfer *failed[2];
static int num_failed;

static enum status start_failing(const struct comm *c, struct transfer *t)
{
    (void)c;
    failed[num_failed++] = t;
    return STATUS_OK;
}

static enum status wait_failing(struct transfer *t)
{
    (void)t;
    FAIL(COMM, "the transfer failed");
}

static void release_nothing(struct comm *c) { (void)c; }

TEST(staged_buffer_of_a_failed_transfer_is_not_used_again)
{
    static const struct transport failing = {.name = "failing",
                                             .release = release_nothing,
                                             .start = start_failing,
                                             .wait = wait_failing};
    num_failed = 0;
    struct comm c = {.rank = 0, .size = 2, .transport = &failing};
    struct queue *queue;
    float x[N] = {0};
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    CHECK_STATUS(OK, staged_wrap(&c, queue));
    struct transfer first = {TRANSFER_broadcast, F32, N, .x = x}, second = first;
    CHECK_STATUS(OK, comm_start(&c, &first));
    CHECK_STATUS(COMM, comm_wait(&first));
    CHECK_STATUS(OK, comm_start(&c, &second));
    CHECK(failed[0]->x != failed[1]->x); /* other ranks may still write to the first */
    CHECK_STATUS(COMM, comm_wait(&second));
    comm_release(&c);
    cpu_queue_close(queue);
}
