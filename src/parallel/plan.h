/* plan.h -- parallel plans: what happens at the boundaries that a model crosses. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "ops/boundary.h"

/* The model is whole on one device, as on each data-parallel rank: crossings do nothing. */
const struct parallel_plan *plan_single_device(void);

/* Tensor parallelism: the matrices of blocks are sliced over the ranks of a group.
 * sequence_parallel (sequence parallelism): so are the tokens of the residual stream, whose number
 * the group's size must divide; without it only forward is possible. */
struct group_plan {
    struct parallel_plan plan; /* for model.plan */
    const struct comm *group, *contexts;
};
void plan_init_tensor(struct group_plan *p, const struct comm *group, bool sequence_parallel);
/* Adds context parallelism: the tokens of rows are divided over the ranks of another group. */
void plan_add_context(struct group_plan *p, const struct comm *contexts);
