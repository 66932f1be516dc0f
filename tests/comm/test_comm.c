// SPDX-License-Identifier: Apache-2.0
#include "comm/contract.h"
#include "comm/ranks.h"
#include "test.h"

enum { MAX_RANKS = 5 };

#define X(name, ranks)                                                                             \
    TEST(comm_##name)                                                                              \
    {                                                                                              \
        for (int size = ranks ? ranks : 2; size <= (ranks ? ranks : MAX_RANKS); size++)            \
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

static enum status fails_and_misses_a_rank(const struct comm *c, void *context)
{
    (void)context;
    if (c->rank == 1) FAIL(IO, "the disk is gone");
    RANK_CHECK(comm_agree(c, FAILURE(DATA, "the seventh row is bad")) == STATUS_DATA);
    RANK_CHECK(!strcmp(status_message(), "the seventh row is bad"));
    RANK_CHECK(!status_is_shared());
    return STATUS_OK;
}

TEST(comm_agree_reports_a_rank_that_is_gone)
{
    CHECK_STATUS(IO, ranks_run(2, misses_a_rank, NULL));
    CHECK_MESSAGE("the disk is gone");
}

TEST(comm_agree_keeps_this_ranks_failure_if_another_rank_is_gone)
{
    CHECK_STATUS(IO, ranks_run(2, fails_and_misses_a_rank, NULL));
    CHECK_MESSAGE("the disk is gone");
}

struct counting_observer {
    struct comm_observer observer; /* first: callbacks cast it to this */
    int started, waited;
    size_t bytes;
};

static void count_start(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                        size_t bytes)
{
    struct counting_observer *seen = (struct counting_observer *)w;
    CHECK(c->size == 4 && t->kind == TRANSFER_all_gather);
    seen->started++;
    seen->bytes += bytes;
}

static void count_wait(struct comm_observer *w, const struct transfer *t)
{
    struct counting_observer *seen = (struct counting_observer *)w;
    CHECK(t->kind == TRANSFER_all_gather && seen->waited < seen->started);
    seen->waited++;
}

TEST(comm_reports_simulated_transfers_to_the_observer)
{
    struct counting_observer seen = {.observer = {count_start, count_wait}};
    struct comm_counts counts = {.observer = &seen.observer};
    struct comm simulated = {.rank = 1, .size = 4, .counts = &counts};
    struct transfer t = {.kind = TRANSFER_all_gather, .dtype = BF16, .count = 10};
    CHECK_STATUS(OK, comm_start(&simulated, &t));
    CHECK(seen.started == 1 && seen.waited == 0);
    CHECK_STATUS(OK, comm_wait(&t));
    CHECK_STATUS(OK, comm_run(&simulated, &t));
    CHECK(seen.started == 2 && seen.waited == 2);
    CHECK(seen.bytes == 2 * 3 * 10 * 2 && counts.bytes[TRANSFER_all_gather] == seen.bytes);
}

TEST(comm_self_is_rank_0_of_1_and_keeps_its_values)
{
    const struct comm *self = comm_self();
    double values[3] = {1.5, -2, NAN};
    int64_t integer = INT64_MAX;
    unsigned char bytes[2] = {7, 9};
    CHECK(self->rank == 0 && self->size == 1);
    CHECK_STATUS(OK, comm_all_reduce(self, REDUCE_SUM, values, 3));
    CHECK_STATUS(OK, comm_all_reduce(self, REDUCE_MAX, values, 3));
    CHECK_STATUS(OK, comm_all_reduce(self, REDUCE_MIN, values, 3));
    CHECK(values[0] == 1.5 && values[1] == -2 && isnan(values[2]));
    CHECK_STATUS(OK, comm_all_reduce_int64(self, REDUCE_SUM, &integer, 1));
    CHECK_STATUS(OK, comm_all_gather_bytes(self, bytes, sizeof bytes));
    CHECK_STATUS(OK, comm_broadcast_bytes(self, 0, bytes, sizeof bytes));
    CHECK(integer == INT64_MAX && bytes[0] == 7 && bytes[1] == 9);
}

TEST(comm_self_agrees_with_itself)
{
    CHECK_STATUS(OK, comm_agree(comm_self(), STATUS_OK));
    CHECK_STATUS(SHAPE, comm_agree(comm_self(), status_fail(STATUS_SHAPE, "x.c", 1, "mine")));
    CHECK_MESSAGE("mine");
}

TEST(comm_self_transfers_its_own_data)
{
    struct comm part;
    float x[3] = {1, 2, 3}, own[3] = {0};
    const size_t three = 3;
    CHECK_STATUS(OK, comm_split(comm_self(), 7, 0, &part));
    CHECK(part.rank == 0 && part.size == 1);
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_all_gather, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_all_reduce, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_broadcast, F32, 3, .x = x}));
    CHECK_STATUS(OK, comm_run(&part, &(struct transfer){TRANSFER_reduce_scatter, F32, 3, .x = x,
                                                        .own = own}));
    CHECK(x[0] == 1 && x[2] == 3 && !memcmp(x, own, sizeof x));
    memset(own, 0, sizeof own);
    CHECK_STATUS(OK,
                 comm_run(&part, &(struct transfer){TRANSFER_shift, F32, 3, .x = x, .own = own}));
    CHECK(x[0] == 1 && x[2] == 3 && !memcmp(x, own, sizeof x));
    memset(own, 0, sizeof own);
    CHECK_STATUS(OK,
                 comm_run(&part, &(struct transfer){TRANSFER_all_to_all, F32, 3, .x = x, .own = own,
                                                    .sends = &three, .receives = &three}));
    CHECK(!memcmp(x, own, sizeof x));
    comm_release(&part);
}

static enum status fulfill_contract_checked(const struct comm *c, void *context)
{
    const struct contract *x = context;
    c->counts->is_checked = true;
    TRY(x->body(c, NULL));
    return STATUS_OK;
}

TEST(checked_groups_fulfill_the_contract)
{
    for (const struct contract *x = contract; x->name; x++) {
        struct contract copy = *x;
        CHECK_STATUS(OK, ranks_run(x->ranks ? x->ranks : 3, fulfill_contract_checked, &copy));
    }
}

/* Which collective rank 1 starts instead of an all-gather of 2 floats. */
enum mistake { MISTAKE_KIND, MISTAKE_SIZE, MISTAKE_DTYPE, MISTAKE_MISSING, MISTAKE_COUNT };

static enum status start_differently(const struct comm *c, void *context)
{
    const enum mistake *mistake = context;
    float x[64] = {0};
    double sum = 0;
    struct transfer t = {TRANSFER_all_gather, F32, 2, .x = x};
    c->counts->is_checked = true;
    TRY(comm_run(c, &t));
    if (c->rank == 1 && *mistake == MISTAKE_KIND) t.kind = TRANSFER_broadcast;
    if (c->rank == 1 && *mistake == MISTAKE_SIZE) t.count = 3;
    if (c->rank == 1 && *mistake == MISTAKE_DTYPE) t.dtype = BF16, t.count = 4;
    bool skips = c->rank == 1 && *mistake == MISTAKE_MISSING;
    enum status st = skips ? STATUS_OK : comm_run(c, &t);
    if (!st) st = comm_all_reduce(c, REDUCE_SUM, &sum, 1);
    RANK_CHECK(st == STATUS_COMM);
    static const char *const parts[] = {
        [MISTAKE_KIND] = "rank 0 its number 2, all_gather of 2 float32; rank 1 its number 2, "
                         "broadcast of 2 float32 from its rank 0",
        [MISTAKE_SIZE] = "rank 1 its number 2, all_gather of 3 float32",
        [MISTAKE_DTYPE] = "rank 1 its number 2, all_gather of 4 bfloat16",
        [MISTAKE_MISSING] = "rank 1 its number 2, all_reduce of 8 bytes"};
    if (!strstr(status_message(), parts[*mistake]))
        FAIL(DATA, "\"%s\" is not in: %s", parts[*mistake], status_message());
    return STATUS_OK;
}

TEST(checked_groups_name_the_rank_that_starts_another_collective)
{
    for (enum mistake m = 0; m < MISTAKE_COUNT; m++)
        CHECK_STATUS(OK, ranks_run(3, start_differently, &m));
}

static enum status count_collectives(const struct comm *c, void *context)
{
    struct transfer gather = {TRANSFER_all_gather, F32, 0, .x = NULL};
    int64_t one = 1;
    char byte = 0;
    struct comm part;
    (void)context;
    TRY(comm_run(c, &gather));
    TRY(comm_all_reduce_int64(c, REDUCE_SUM, &one, 1));
    TRY(comm_broadcast_bytes(c, 1, &byte, 1));
    TRY(comm_agree(c, STATUS_OK));
    RANK_CHECK(c->counts->collectives == 4 && c->counts->calls[TRANSFER_all_reduce] == 0);
    c->counts->name = "named", c->counts->is_checked = true;
    TRY(comm_split(c, c->rank % 2, c->rank, &part));
    RANK_CHECK(part.counts->is_checked && !strcmp(comm_name(&part), "named"));
    float x = (float)c->rank;
    struct transfer message = {.kind = c->rank < 2 ? TRANSFER_send : TRANSFER_receive,
                               .dtype = F32,
                               .count = 1,
                               .x = &x,
                               .peer = (c->rank + 2) % 4};
    TRY(comm_run(c, &message)); /* not a collective */
    RANK_CHECK(c->counts->collectives == 4 && part.counts->collectives == 0);
    comm_release(&part);
    return STATUS_OK;
}

TEST(collectives_of_a_group_are_numbered)
{
    CHECK_STATUS(OK, ranks_run(4, count_collectives, NULL));
}
