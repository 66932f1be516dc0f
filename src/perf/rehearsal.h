/* rehearsal.h -- a step that is told instead of taken: operations that only say with which sizes
 * they were called, and clocks that hear of them and of every transfer.
 *
 * Memory   A rehearsal is the caller's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "parallel/estimate.h"
#include "perf/operations.h"

/* A queue behind which nothing is computed. */
struct rehearsal {
    struct queue base; /* first: the operations get a struct queue * */
    void (*call)(struct rehearsal *r, const struct op_call *c);
};
/* Tells the rehearsal, which their queue must be, of each call. */
extern const struct ops rehearsal_ops;

/* How long a step of a mesh's ranks takes on this hardware.  As trainer_plan. */
enum status rehearsal_estimate(struct estimate *e, const struct config *c,
                               const struct model_shape *shape, const struct mesh *mesh,
                               const struct hardware *hardware);
