// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comm/operation.h"

#include <stdlib.h>

/* A library whose messages are complete after some polls, and which counts what it is given. */
struct counting_operation {
    struct operation base;
    int polls;
};

struct counting_group {
    struct operation_group base;
    int num_posted, polls_left, fails_at; /* fails_at: the post that fails; 0: none */
    struct message last;
};

static enum status count_post(struct operation *op, struct message m)
{
    struct counting_group *g = op->comm.group;
    op->num_posted++;
    g->last = m;
    if (++g->num_posted == g->fails_at) FAIL(COMM, "message %d was lost", g->num_posted);
    return STATUS_OK;
}

static enum status count_test(struct operation *op, bool *all)
{
    struct counting_operation *c = (struct counting_operation *)op;
    const struct counting_group *g = op->comm.group;
    *all = c->polls++ >= g->polls_left;
    if (*all) c->polls = 0;
    return STATUS_OK;
}

static enum status count_bytes(struct operation *op, size_t *bytes)
{
    *bytes = op->t->count == 3 ? 12 : 8;
    return STATUS_OK;
}

static const struct message_library counting = {.operation_bytes =
                                                    sizeof(struct counting_operation),
                                                .post = count_post,
                                                .test = count_test,
                                                .count_received = count_bytes};

static void open_group(struct operation_engine *e, struct counting_group *g, struct comm *c)
{
    static const struct transport transport = {
        .name = "counting", .start = operation_start, .wait = operation_wait};
    CHECK_STATUS(OK, operation_engine_open(e, &counting, NULL));
    *g = (struct counting_group){.base = {.engine = e}, .polls_left = 3};
    *c = (struct comm){.rank = 1, .size = 4, .transport = &transport, .group = g};
}

TEST(operation_posts_the_messages_of_each_kind)
{
    struct operation_engine e;
    struct counting_group g;
    struct comm c;
    float x[12] = {0}, work[12] = {0};
    const size_t to[] = {2, 1, 0, 1}, from[] = {0, 1, 0, 2};
    /* Elements of 4 ranks; posts of rank 1, which sums 1 of an all_reduce's 3 elements. */
    const struct {
        struct transfer t;
        int posts;
    } kinds[] = {
        {{TRANSFER_send, F32, 3, .x = x, .peer = 2, .tag = 9}, 1},
        {{TRANSFER_receive, F32, 3, .x = x, .peer = 2, .tag = 9}, 1},
        {{TRANSFER_broadcast, F32, 3, .x = x, .peer = 1}, 3},
        {{TRANSFER_broadcast, F32, 3, .x = x, .peer = 0}, 1},
        {{TRANSFER_all_gather, F32, 3, .x = x}, 6},
        {{TRANSFER_shift, F32, 3, .x = x, .own = work}, 2},
        {{TRANSFER_all_to_all, F32, 9, .x = x, .own = work, .sends = to, .receives = from}, 3},
        {{TRANSFER_reduce_scatter, F32, 3, .x = x, .own = x, .work = work}, 6},
        {{TRANSFER_all_reduce, F32, 8, .x = x, .work = work}, 12},
    };
    open_group(&e, &g, &c);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct transfer t = kinds[i].t;
        g.num_posted = 0;
        CHECK_STATUS(OK, comm_run(&c, &t));
        CHECK(g.num_posted == kinds[i].posts);
        bool is_p2p = t.kind == TRANSFER_send || t.kind == TRANSFER_receive;
        CHECK(is_p2p ? g.last.tag == 9 && g.last.peer == 2 : g.last.tag >= 1 << 15);
    }
    operation_engine_release(&e);
}

TEST(operation_compares_the_length_of_a_received_message)
{
    struct operation_engine e;
    struct counting_group g;
    struct comm c;
    float x[4];
    open_group(&e, &g, &c);
    CHECK_STATUS(COMM, comm_run(&c, &(struct transfer){TRANSFER_receive, F32, 4, .x = x}));
    CHECK_MESSAGE("rank 0 in a group of 4 sent 8 bytes with tag 0; rank 1 expects 16");
    operation_engine_release(&e);
}

TEST(operation_returns_the_failure_of_a_message_to_all_who_wait)
{
    struct operation_engine e;
    struct counting_group g;
    struct comm c;
    float x[12] = {0};
    struct transfer first = {TRANSFER_all_gather, F32, 3, .x = x}, second = first;
    open_group(&e, &g, &c);
    g.fails_at = 5;
    CHECK_STATUS(OK, comm_start(&c, &first));
    CHECK_STATUS(OK, comm_start(&c, &second));
    CHECK_STATUS(COMM, comm_wait(&second));
    CHECK_STATUS(COMM, comm_wait(&first));
    CHECK_MESSAGE("message 5 was lost");
    operation_engine_release(&e);
}

static enum status end_at_once(struct operation *op, bool *is_over)
{
    (void)op;
    *is_over = true;
    return STATUS_OK;
}

TEST(operation_records_are_reused)
{
    struct operation_engine e;
    struct counting_group g;
    struct comm c;
    open_group(&e, &g, &c);
    struct operation *first = operation_acquire(&c, "nothing", end_at_once);
    CHECK(operation_run(first) == NULL);
    operation_recycle(first);
    CHECK(operation_acquire(&c, "nothing", end_at_once) == first);
    operation_recycle(first);
    operation_engine_release(&e);
}
