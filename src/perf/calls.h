/* calls.h -- the calls of operations that one optimizer step makes, in order, found by rehearsing
 * it: the model says itself what it computes with which sizes.
 *
 * Memory   The list owns its arrays. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "perf/operations.h"

struct call_list {
    struct call {
        struct op_call call;
        char *sizes;  /* of op_sizes; owned */
        int per_step; /* how often a step makes this call */
    } * calls;        /* those that differ */
    size_t count;
    size_t *order; /* of a step: numbers of `calls` */
    size_t length;
};

/* Of a step over `ops`; `c` without validation.  As trainer_plan. */
enum status calls_of_step(struct call_list *l, const struct config *c,
                          const struct model_shape *shape, const struct ops *ops);
void calls_release(struct call_list *l);
