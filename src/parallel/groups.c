// SPDX-License-Identifier: Apache-2.0
#include "parallel/groups.h"

enum status groups_open(struct groups *g, const struct mesh *m, const struct comm *world)
{
    enum status st = STATUS_OK;
    *g = (struct groups){0};
    for (enum group i = 0; i < GROUP_COUNT; i++) {
        TRY_OUT(comm_split(world, mesh_group_color(m, i), mesh_group_rank(m, i), &g->of[i]));
        if (g->of[i].counts) g->of[i].counts->name = mesh_group_name(i);
    }
    return STATUS_OK;
out:
    groups_close(g);
    return st;
}

enum status groups_wrap_device(struct groups *g,
                               enum status (*wrap)(struct comm *c, const char *name,
                                                   enum comm_use use, void *context),
                               void *context)
{
    static const struct {
        enum group group;
        enum comm_use use;
    } of_tensors[] = {{GROUP_pp, COMM_ONLY_MESSAGES},
                      {GROUP_replicate, COMM_ALL},
                      {GROUP_shard, COMM_ALL},
                      {GROUP_cp, COMM_ONLY_SHIFTS},
                      {GROUP_tp, COMM_ALL}};
    for (size_t i = 0; i < sizeof of_tensors / sizeof *of_tensors; i++) {
        enum group group = of_tensors[i].group;
        struct comm *c = &g->of[group];
        if (c->size > 1) TRY(wrap(c, mesh_group_name(group), of_tensors[i].use, context));
    }
    return STATUS_OK;
}

void groups_close(struct groups *g)
{
    for (enum group i = 0; i < GROUP_COUNT; i++) comm_release(&g->of[i]);
}

void groups_init_simulated(struct groups *g, const struct mesh *m)
{
    for (enum group i = 0; i < GROUP_COUNT; i++)
        g->of[i] = (struct comm){
            .rank = mesh_group_rank(m, i), .size = mesh_group_size(m, i), .counts = &g->planned[i]};
}
