// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_cost.h"

#include "perf/layouts.h"
#include "test.h"
#include "train/trainer.h"

/* Two microbatches show what all of them need. */
TEST(layout_cost_has_the_memory_of_a_whole_sizing_pass)
{
    static const char *const settings[][3] = {
        {"training.local_batch_size=2", "training.global_batch_size=32"},
        {"parallelism.pipeline_parallel_degree=2", "training.global_batch_size=32"},
        {"parallelism.context_parallel_degree=2", "parallelism.tensor_parallel_degree=2"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct layouts l;
        struct layout_cost cost;
        struct mesh mesh;
        double most = 0;
        layouts_open(&l, 4, 32, settings[i], 2);
        CHECK_STATUS(OK, mesh_resolve(&mesh, &l.config.parallelism, 0, 4));
        CHECK_STATUS(OK, layout_cost_memory(&cost, &l.model, &l.config, &mesh));
        for (int stage = 0; stage < mesh.degree[AXIS_pp]; stage++) {
            struct machine m = l.model.machine;
            struct memory_plan plan;
            m.mesh = mesh, m.mesh.at[AXIS_pp] = stage;
            groups_init_simulated(&m.groups, &m.mesh);
            CHECK_STATUS(OK, trainer_plan(&l.config, &l.shape, &m, &plan));
            described_gpu_add_context(&plan);
            described_gpu_add_communicators(&l.config, &l.shape, &m, l.model.hardware.node_ranks,
                                            &plan);
            double bytes = (double)memory_plan_total(&plan);
            if (bytes > most) most = bytes;
        }
        CHECK(cost.memory_bytes == most && cost.host_bytes > 0);
        l.model.other_bytes = 1000;
        CHECK_STATUS(OK, layout_cost_memory(&cost, &l.model, &l.config, &mesh));
        CHECK(cost.memory_bytes == most + 1000);
        layouts_close(&l);
    }
}

TEST(layout_cost_fits_device_and_host)
{
    struct layout_cost cost = {.memory_bytes = 10, .host_bytes = 5};
    struct cost_model m = {.hardware = {.memory_bytes = 10}};
    CHECK(layout_cost_fits(&cost, &m)); /* host unknown */
    m.host_bytes = 4;
    CHECK(!layout_cost_fits(&cost, &m));
    m.host_bytes = 5, m.hardware.memory_bytes = 9;
    CHECK(!layout_cost_fits(&cost, &m));
}
