// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_cost.h"

#include "tensor/queue.h"
#include "train/trainer.h"

#include <math.h>

/* Groups that count no transfers, so that a pass of two microbatches is enough. */
static void init_groups(struct groups *g, const struct mesh *mesh)
{
    groups_init_simulated(g, mesh);
    for (enum group i = 0; i < GROUP_COUNT; i++) g->of[i].counts = NULL;
}

enum status layout_cost_memory(struct layout_cost *out, const struct cost_model *m,
                               const struct config *c, const struct mesh *mesh)
{
    struct machine here = m->machine;
    out->memory_bytes = out->host_bytes = 0;
    here.mesh = *mesh;
    for (int stage = 0; stage < mesh->degree[AXIS_pp]; stage++) {
        struct memory_plan plan;
        here.mesh.at[AXIS_pp] = stage;
        init_groups(&here.groups, &here.mesh);
        TRY(trainer_plan(c, m->shape, &here, &plan));
        if (m->gpu) described_gpu_add_context(&plan);
        if (queue_device_allocator(here.queue))
            described_gpu_add_communicators(c, m->shape, &here, m->hardware.node_ranks, &plan);
        double bytes = (double)(memory_plan_total(&plan) + m->other_bytes);
        double host = (double)(memory_plan_host_total(&plan) + m->other_host_bytes);
        out->memory_bytes = fmax(out->memory_bytes, bytes);
        out->host_bytes = fmax(out->host_bytes, host);
    }
    return STATUS_OK;
}

bool layout_cost_fits(const struct layout_cost *cost, const struct cost_model *m)
{
    return cost->memory_bytes <= m->hardware.memory_bytes &&
           (!(m->host_bytes > 0) || cost->host_bytes <= m->host_bytes);
}
