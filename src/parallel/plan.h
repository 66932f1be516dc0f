/* plan.h -- parallel plans: what happens at the boundaries that a model crosses. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "ops/boundary.h"

/* The model is whole on one device, as on each data-parallel rank: crossings do nothing. */
const struct plan *plan_single_device(void);

/* Tensor parallelism: the matrices of blocks are sliced over the ranks of a group.  stream_cut
 * (sequence parallelism): so are the tokens of the residual stream, whose number the group's size
 * must divide; without it only forward is possible. */
struct tensor_plan {
    struct plan plan; /* for model.plan */
    const struct comm *group, *contexts;
};
void tensor_plan_init(struct tensor_plan *p, const struct comm *group, bool stream_cut);
/* Adds context parallelism: the tokens of rows are divided over the ranks of another group. */
void tensor_plan_contexts(struct tensor_plan *p, const struct comm *contexts);
