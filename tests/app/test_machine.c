// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/machine.h"
#include "base/thread.h"
#include "ops/ops.h"

TEST(a_machine_has_every_operation_and_the_threads_it_was_given)
{
    static const char *const kinds[] = {"auto", "reference"};
    for (size_t i = 0; i < 2; i++) {
        struct machine m;
        struct device_config c = {.kind = "auto", .cpu = kinds[i], .threads = 1};
        CHECK_STATUS(OK, machine_open(&m, &c));
        CHECK(!ops_missing(m.ops));
        CHECK(m.on->num_threads == 1);
        machine_measure_peak(&m, F32);
        CHECK(m.peak_flops > 1e8);
        machine_close(&m);
    }
}

TEST(a_machine_has_at_least_one_core_and_takes_all_of_them)
{
    struct machine m;
    struct device_config c = {.kind = "auto", .cpu = "auto"};
    CHECK(thread_cores() >= 1);
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(m.on->num_threads == thread_cores());
    machine_close(&m);
}

TEST(a_machine_started_alone_is_one_rank_and_its_mesh_must_be_so_too)
{
    struct machine m;
    struct device_config c = {.kind = "auto", .cpu = "auto", .threads = 1};
    struct parallelism_config p = {.data_parallel_replicate_degree = 1,
                                   .data_parallel_shard_degree = -1,
                                   .tensor_parallel_degree = 1,
                                   .pipeline_parallel_degree = 1,
                                   .context_parallel_degree = 1};
    CHECK_STATUS(OK, machine_join(&m));
    CHECK_STATUS(OK, machine_open_ranks(&m, &c, &p));
    CHECK(m.world.size == 1 && m.groups.of[GROUP_world].size == 1 && m.on->num_threads == 1);
    machine_close_ranks(&m, STATUS_OK);
    p.tensor_parallel_degree = 2;
    CHECK_STATUS(OK, machine_join(&m));
    CHECK_STATUS(CONFIG, machine_open_ranks(&m, &c, &p));
    CHECK_MESSAGE("do not make 1 rank");
    machine_close_ranks(&m, STATUS_CONFIG);
}
