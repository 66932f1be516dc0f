// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "parallel/degrees.h"
#include "test.h"

#include "parallel/groups.h"

static enum status check_groups(const struct comm *world, void *context)
{
    struct parallelism_config *c = context;
    struct mesh m;
    struct groups g;
    TRY(mesh_resolve(&m, c, world->rank, world->size));
    TRY(groups_open(&g, &m, world));
    for (enum group i = 0; i < GROUP_COUNT; i++) {
        RANK_CHECK(g.of[i].size == mesh_group_size(&m, i));
        RANK_CHECK(g.of[i].rank == mesh_group_rank(&m, i));
    }
    /* Ranks of a tp group are consecutive. */
    double ranks = world->rank, first = world->rank - m.at[AXIS_tp], n = m.degree[AXIS_tp];
    TRY(comm_all_reduce(&g.of[GROUP_tp], REDUCE_SUM, &ranks, 1));
    RANK_CHECK(ranks == n * first + n * (n - 1) / 2);
    groups_close(&g);
    return STATUS_OK;
}

TEST(groups_contain_the_ranks_that_differ_only_on_their_axes)
{
    struct parallelism_config all[] = {degrees(2, 1, 2, 1, 2), degrees(1, 2, 1, 2, 2),
                                       degrees(1, 2, 3, 1, 1), degrees(1, 1, 1, 1, 1)};
    int sizes[] = {8, 8, 6, 1};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_STATUS(OK, ranks_run(sizes[i], check_groups, &all[i]));
}
