/* plan.h -- what happens at the boundaries a model crosses. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "ops/boundary.h"

/* The model lies whole on one device, as it does on each of data-parallel ranks. */
const struct plan *plan_alone(void);

/* Blocks' matrices are cut over the ranks of a group (tensor parallelism).  stream_cut: so are the
 * tokens between them (sequence parallelism), whose number the ranks must divide; without it only
 * forward passes can be made. */
struct tensor_plan {
    struct plan plan; /* what the model is given */
    const struct comm *group, *contexts;
};
void tensor_plan_init(struct tensor_plan *p, const struct comm *group, bool stream_cut);
/* Rows are cut over the ranks of another group, too (context parallelism). */
void tensor_plan_contexts(struct tensor_plan *p, const struct comm *contexts);
