// SPDX-License-Identifier: Apache-2.0
#include "parallel/degrees.h"
#include "test.h"

#include "parallel/mesh.h"

TEST(mesh_infers_the_shard_degree)
{
    struct mesh m;
    struct parallelism_config c = degrees(2, 2, -1, 1, 4);
    CHECK_STATUS(OK, mesh_resolve(&m, &c, 0, 48));
    CHECK(m.degree[AXIS_dp_shard] == 3);
    c = degrees(1, 1, -1, 1, 1);
    CHECK_STATUS(OK, mesh_resolve(&m, &c, 0, 1));
    CHECK(m.degree[AXIS_dp_shard] == 1);
}

TEST(mesh_rejects_degrees_whose_product_is_not_the_number_of_ranks)
{
    struct mesh m;
    struct parallelism_config wrong[] = {degrees(1, 1, 3, 1, 1), degrees(1, 1, -1, 1, 3),
                                         degrees(2, 2, 1, 1, 1), degrees(1, 1, 0, 1, 1),
                                         degrees(1 << 20, 1 << 20, -1, 1 << 20, 1 << 20)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(CONFIG, mesh_resolve(&m, &wrong[i], 0, 2));
    CHECK_STATUS(CONFIG, mesh_resolve(&m, &wrong[0], 0, 2));
    CHECK_MESSAGE("data_parallel_shard_degree 3");
    CHECK_MESSAGE(
        "the number of ranks must be 3, got 2; start 3 ranks (--ranks or mpirun -n), or set "
        "data_parallel_shard_degree = -1 for all remaining ranks");
    CHECK_STATUS(CONFIG, mesh_resolve(&m, &wrong[1], 0, 2));
    CHECK_MESSAGE("the number of ranks must be a multiple of 3, got 2; start 3 ranks");
    CHECK_STATUS(CONFIG, mesh_resolve(&m, &wrong[4], 0, 2));
    CHECK_MESSAGE("more than");
    CHECK(mesh_min_ranks(&wrong[0]) == 3 && mesh_min_ranks(&wrong[1]) == 3);
    CHECK(mesh_min_ranks(&wrong[2]) == 4 && mesh_min_ranks(&wrong[4]) == 0);
}

TEST(mesh_varies_tp_fastest_and_pp_slowest)
{
    struct mesh m;
    struct parallelism_config c = degrees(2, 1, 2, 1, 3);
    CHECK_STATUS(OK, mesh_resolve(&m, &c, 1, 12));
    CHECK(m.at[AXIS_tp] == 1 && m.at[AXIS_dp_shard] == 0 && m.at[AXIS_pp] == 0);
    CHECK_STATUS(OK, mesh_resolve(&m, &c, 3, 12));
    CHECK(m.at[AXIS_tp] == 0 && m.at[AXIS_dp_shard] == 1 && m.at[AXIS_pp] == 0);
    for (int rank = 0; rank < 12; rank++) {
        mesh_set_rank(&m, rank);
        CHECK(mesh_rank(&m, m.at) == rank);
        CHECK(m.at[AXIS_pp] == rank / 6);
    }
}

TEST(mesh_counts_the_ranks_of_a_group_on_the_same_node)
{
    struct mesh m;
    struct parallelism_config c = degrees(2, 2, 4, 1, 2);
    CHECK_STATUS(OK, mesh_resolve(&m, &c, 9, 32)); /* tp 1, shard 0, replicate 1, pp 0 */
    CHECK(mesh_group_on_node(&m, GROUP_tp, 8) == 2 && mesh_group_on_node(&m, GROUP_shard, 8) == 4);
    CHECK(mesh_group_on_node(&m, GROUP_replicate, 8) == 1 &&
          mesh_group_on_node(&m, GROUP_pp, 8) == 1);
    CHECK(mesh_group_on_node(&m, GROUP_world, 8) == 8 &&
          mesh_group_on_node(&m, GROUP_data, 16) == 8);
    CHECK(mesh_group_on_node(&m, GROUP_shard, 4) == 2 && mesh_group_on_node(&m, GROUP_tp, 1) == 1);
    CHECK(mesh_group_on_node(&m, GROUP_pp, 32) == 2);
}
