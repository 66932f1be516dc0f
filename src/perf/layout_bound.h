/* layout_bound.h -- lower bounds of the step time and of the memory of a layout, fast enough for
 * every layout that `plan --search` considers.
 *
 * Blocks of the model are alike, so the simulated time and memory of a stage are linear in its
 * blocks.  A few simulations of two and four blocks give the time of a block, of the embedding and
 * of the head, for each tensor- and context-parallel degree, rows of a microbatch and
 * recomputation; transfers of FSDP and of replicas, which only add to that, are left out, and
 * bounded by their bytes.
 *
 * Units    Seconds, bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/layout_choice.h"
#include "perf/layout_cost.h"

struct layout_bounds; /* what was simulated so far */
struct layout_bounds *layout_bounds_open(const struct layout_choices *all,
                                         const struct cost_model *m);
void layout_bounds_close(struct layout_bounds *b);

struct layout_bound {
    double seconds;    /* no less than this */
    double expected_s; /* a guess that orders layouts of equal bounds: transfers are not free */
    double memory_bytes;
};
/* Errors as trainer_plan. */
enum status layout_bounds_find(struct layout_bounds *b, const struct layout_choice *x,
                               struct layout_bound *out);
