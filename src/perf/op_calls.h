/* op_calls.h -- the calls of operations that one optimizer step makes, in order.  They are recorded
 * from a dry run of the step's own code, so the list cannot disagree with the model.
 *
 * Memory   The list owns its arrays. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "perf/op.h"

struct op_calls {
    struct step_call {
        struct op_call call;
        char *sizes;  /* from op_sizes; owned */
        int per_step; /* how many times a step makes this call */
    } * calls;        /* the distinct calls */
    size_t count;
    size_t *order; /* the step's sequence, as indices into `calls` */
    size_t length;
};

/* Records a step on one rank; `c` must have validation disabled.  `ops` is the backend whose step
 * it is: if its kernels compute amax themselves, the list has no calls for that; native_fp8: it has
 * native FP8 (ops.h).  Errors as trainer_plan. */
enum status op_calls_record_step(struct op_calls *l, const struct config *c,
                                 const struct model_shape *shape, const struct ops *ops,
                                 bool native_fp8);
void op_calls_release(struct op_calls *l);
