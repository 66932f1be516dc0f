// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comm/comm.h"

/* A group as one of its ranks sees it: the others' contributions are known beforehand. */
struct played {
    struct comm comm;
    int num_others;
    double others[3][2];
    bool gone;
};

static enum status play(const struct comm *c, enum reduction how, double *values, size_t count)
{
    const struct played *p = (const struct played *)c;
    if (p->gone) FAIL(COMM, "a rank is gone");
    for (int r = 0; r < p->num_others; r++)
        for (size_t i = 0; i < count; i++) {
            double x = p->others[r][i];
            if (how == REDUCE_SUM)
                values[i] += x;
            else if (x > values[i])
                values[i] = x;
        }
    return STATUS_OK;
}

/* What a rank sends in comm_agree, seen from outside. */
static double said;
static enum status overhear(const struct comm *c, enum reduction how, double *values, size_t count)
{
    CHECK(c->size > 0 && how == REDUCE_MAX && count == 1);
    said = values[0];
    return STATUS_OK;
}

static double what_says(int rank, int size, enum status mine)
{
    struct comm c = {rank, size, overhear};
    CHECK(comm_agree(&c, mine) == mine);
    return said;
}

TEST(comm_sums_and_takes_the_maximum_over_ranks)
{
    struct played p = {{0, 3, play}, 2, {{1, 10}, {2, 5}}, false};
    double values[2] = {4, 7};
    CHECK_STATUS(OK, comm_all_reduce(&p.comm, REDUCE_SUM, values, 2));
    CHECK(values[0] == 7 && values[1] == 22);
    struct played q = {{0, 3, play}, 2, {{1, 0}, {9, 0}}, false};
    double most = 4;
    CHECK_STATUS(OK, comm_all_reduce(&q.comm, REDUCE_MAX, &most, 1));
    CHECK(most == 9);
}

TEST(comm_maximum_does_not_hide_a_nan)
{
    struct played elsewhere = {{0, 2, play}, 1, {{-INFINITY, 1}}, false};
    double most = 4;
    CHECK_STATUS(OK, comm_all_reduce(&elsewhere.comm, REDUCE_MAX, &most, 1));
    CHECK(isnan(most));
    struct played here = {{0, 2, play}, 1, {{4, 0}}, false};
    most = NAN;
    CHECK_STATUS(OK, comm_all_reduce(&here.comm, REDUCE_MAX, &most, 1));
    CHECK(isnan(most));
}

TEST(comm_agrees_that_all_are_fine)
{
    struct played p = {{1, 3, play}, 2, {{0}, {0}}, false};
    CHECK_STATUS(OK, comm_agree(&p.comm, STATUS_OK));
}

TEST(comm_tells_a_fine_rank_which_rank_failed_first_and_how)
{
    struct played p = {{0, 4, play}, 2, {{0}, {0}}, false};
    p.others[0][0] = what_says(3, 4, STATUS_DEVICE);
    p.others[1][0] = what_says(2, 4, STATUS_IO);
    CHECK_STATUS(IO, comm_agree(&p.comm, STATUS_OK));
    CHECK_MESSAGE("rank 2 failed: reading or writing failed");
    for (int kind = 1; kind < STATUS_COUNT; kind++)
        for (int rank = 1; rank < 4; rank++) {
            struct played one = {{0, 4, play}, 1, {{0}}, false};
            one.others[0][0] = what_says(rank, 4, (enum status)kind);
            CHECK(comm_agree(&one.comm, STATUS_OK) == (enum status)kind);
            char name[32];
            snprintf(name, sizeof name, "rank %d failed", rank);
            CHECK_MESSAGE(name);
        }
}

TEST(comm_leaves_a_failed_ranks_own_message_alone)
{
    struct played p = {{1, 2, play}, 1, {{0}}, false};
    p.others[0][0] = what_says(0, 2, STATUS_IO);
    enum status mine = status_fail(STATUS_DATA, "x.c", 1, "the seventh row is bad");
    CHECK_STATUS(DATA, comm_agree(&p.comm, mine));
    CHECK_MESSAGE("the seventh row is bad");
}

TEST(comm_agree_reports_a_rank_that_is_gone)
{
    struct played p = {{0, 2, play}, 0, {{0}}, true};
    CHECK_STATUS(COMM, comm_agree(&p.comm, STATUS_OK));
}
