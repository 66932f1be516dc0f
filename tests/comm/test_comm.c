// SPDX-License-Identifier: Apache-2.0
#include "comm/contract.h"
#include "comm/ranks.h"
#include "test.h"

enum { MOST_RANKS = 5 };

#define X(name, ranks)                                                                             \
    TEST(comm_##name)                                                                              \
    {                                                                                              \
        for (int size = ranks ? ranks : 2; size <= (ranks ? ranks : MOST_RANKS); size++)           \
            CHECK_STATUS(OK, ranks_run(size, contract_##name, NULL));                              \
    }
CONTRACT_LIST(X)
#undef X

static enum status misses_a_rank(const struct comm *c, void *context)
{
    (void)context;
    if (c->rank == 1) FAIL(IO, "the disk is gone");
    TRY(comm_agree(c, STATUS_OK));
    return STATUS_OK;
}

TEST(comm_agree_reports_a_rank_that_is_gone)
{
    CHECK_STATUS(IO, ranks_run(2, misses_a_rank, NULL));
    CHECK_MESSAGE("the disk is gone");
}

struct watching {
    struct comm_watch watch; /* first: what it tells gets a struct comm_watch * */
    int started, waited;
    size_t bytes;
};

static void see_start(struct comm_watch *w, const struct comm *c, const struct transfer *t,
                      size_t bytes)
{
    struct watching *seen = (struct watching *)w;
    CHECK(c->size == 4 && t->kind == TRANSFER_all_gather);
    seen->started++;
    seen->bytes += bytes;
}

static void see_wait(struct comm_watch *w, const struct transfer *t)
{
    struct watching *seen = (struct watching *)w;
    CHECK(t->kind == TRANSFER_all_gather && seen->waited < seen->started);
    seen->waited++;
}

TEST(comm_tells_who_watches_a_plan_of_every_transfer)
{
    struct watching seen = {.watch = {see_start, see_wait}};
    struct comm_counts counts = {.watch = &seen.watch};
    struct comm planned = {.rank = 1, .size = 4, .counts = &counts};
    struct transfer t = {.kind = TRANSFER_all_gather, .dtype = BF16, .count = 10};
    CHECK_STATUS(OK, comm_start(&planned, &t));
    CHECK(seen.started == 1 && seen.waited == 0);
    CHECK_STATUS(OK, comm_wait(&t));
    CHECK_STATUS(OK, comm_run(&planned, &t));
    CHECK(seen.started == 2 && seen.waited == 2);
    CHECK(seen.bytes == 2 * 3 * 10 * 2 && counts.bytes[TRANSFER_all_gather] == seen.bytes);
}
