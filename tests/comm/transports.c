// SPDX-License-Identifier: Apache-2.0
#include "comm/transports.h"

#include "base/clock.h"
#include "comm/contract.h"
#include "comm/launched.h"
#include "comm/ranks.h"
#include "test.h"

#include <sched.h>
#include <stdlib.h>

RANKS(contract)
{
    RANK_CHECK(world->size == TRANSPORT_RANKS);
    TRY(contract_run(world, contract));
    return STATUS_OK;
}

static enum status fails_on_rank_1(const struct comm *c, void *context)
{
    double sum = 1;
    (void)context;
    RANK_CHECK(c->rank != 1);
    TRY(comm_all_reduce(c, REDUCE_SUM, &sum, 1));
    return STATUS_OK;
}

RANKS(failed_check)
{
    static const struct contract lines[] = {{"fails_on_rank_1", 0, fails_on_rank_1}, {NULL}};
    TRY(contract_run(world, lines));
    return STATUS_OK;
}

/* Polls memory instead of waiting for the transfer. */
static enum status arrives(const volatile float *x, float value)
{
    enum { TIMEOUT_S = 40 };
    double begin = clock_monotonic_s();
    while (*x != value) {
        RANK_CHECK(clock_monotonic_s() - begin < TIMEOUT_S);
        sched_yield();
    }
    return STATUS_OK;
}

RANKS(overlap)
{
    size_t count = transfer_chunk(SIZE_MAX, world->size) + 1, size = (size_t)world->size;
    float *parts = heap(size * count * sizeof *parts), *x = heap(size * count * sizeof *x);
    for (size_t i = 0; i < count; i++) parts[(size_t)world->rank * count + i] = 3;
    for (size_t i = 0; i < size * count; i++) x[i] = 1;
    struct transfer gather = {TRANSFER_all_gather, F32, count, .x = parts};
    struct transfer reduce = {TRANSFER_reduce_scatter, F32, count, .x = x, .own = heap(4 * count)};
    reduce.work = heap(transfer_work_bytes(reduce.kind, F32, count, world->size));
    TRY(comm_start(world, &gather));
    TRY(comm_start(world, &reduce));
    for (size_t r = 0; r < size; r++) TRY(arrives(&parts[(r + 1) * count - 1], 3));
    TRY(arrives((float *)reduce.own + count - 1, (float)size));
    TRY(comm_wait(&reduce));
    TRY(comm_wait(&gather));
    free(parts), free(x), free(reduce.own), free(reduce.work);
    return STATUS_OK;
}

/* Integers, so that sums over a few ranks are exact. */
static float whole(int r, size_t i) { return (float)(r + 1) * (float)(i % 1000); }

/* Two groups of the same ranks; odd ranks start, and wait for, the second one first. */
RANKS(any_order)
{
    enum { ROUNDS = 5 };
    size_t count = (size_t)world->size * (transfer_chunk(SIZE_MAX, world->size) + 1);
    float *x[2], times = (float)(world->size * (world->size + 1) / 2);
    struct comm of[2];
    struct transfer t[2];
    for (int g = 0; g < 2; g++) TRY(comm_split(world, 0, world->rank, &of[g]));
    size_t work_bytes = transfer_work_bytes(TRANSFER_all_reduce, F32, count, world->size);
    for (int round = 0; round < ROUNDS; round++) {
        for (int g = 0; g < 2; g++) x[g] = heap(count * sizeof *x[g]);
        for (size_t i = 0; i < count; i++) x[0][i] = x[1][i] = whole(world->rank, i);
        for (int i = 0; i < 2; i++) {
            int g = i ^ (world->rank & 1);
            t[g] = (struct transfer){TRANSFER_all_reduce, F32, count, .x = x[g]};
            t[g].work = heap(work_bytes);
            TRY(comm_start(&of[g], &t[g]));
        }
        for (int i = 0; i < 2; i++) TRY(comm_wait(&t[i ^ (world->rank & 1)]));
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(x[0][i] == times * whole(0, i) && x[1][i] == x[0][i]);
        for (int g = 0; g < 2; g++) free(x[g]), free(t[g].work);
    }
    comm_release(&of[0]), comm_release(&of[1]);
    return STATUS_OK;
}

RANKS(failure)
{
    double x = 0;
    TRY(comm_all_reduce(world, REDUCE_SUM, &x, 1));
    if (world->rank == 1) FAIL(DIVERGED, "the loss is not finite");
    TRY(comm_all_reduce(world, REDUCE_SUM, &x, 1));
    return STATUS_OK;
}

RANKS(truncated)
{
    float x[8] = {0};
    struct transfer t = {TRANSFER_send, F32, 4, .x = x, .peer = 1, .tag = 7};
    if (world->rank == 1) t = (struct transfer){TRANSFER_receive, F32, 8, .x = x, .tag = 7};
    if (world->rank < 2) TRY(comm_run(world, &t));
    double sum = 0;
    TRY(comm_all_reduce(world, REDUCE_SUM, &sum, 1));
    return STATUS_OK;
}

void transport_check(transport_launcher launch, const char *name)
{
    struct text err = {0};
    int code = launch(TRANSPORT_RANKS, name, &err);
    if (code < 0) skip();
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);
    text_release(&err);
}

void transport_check_failure(transport_launcher launch, const char *name, enum status want,
                             const char *message)
{
    struct text err = {0};
    int code = launch(TRANSPORT_RANKS, name, &err);
    if (code < 0) skip();
    if (code != status_exit_code(want)) print_error("exit code %d: %s\n", code, err.data);
    CHECK(code == status_exit_code(want));
    CHECK(strstr(err.data, message));
    text_release(&err);
}
