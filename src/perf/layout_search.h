/* layout_search.h -- the best layouts of a run for a number of ranks.
 *
 * Branch and bound: layouts whose lower bound of memory (layout_bound.h) exceeds the hardware's are
 * dropped; the others are simulated in the order of their bounds of the step time, until no bound
 * is below the times that were found.
 *
 * Order    Layouts that differ in the degrees tp, cp or pp compete; of those that share the three
 *          the fastest remains.  Results do not depend on the machine's speed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/layout_choice.h"
#include "perf/layout_cost.h"

enum { LAYOUT_SEARCH_BEST = 10 };

struct found_layout {
    struct layout_choice choice;
    struct layout_cost cost;
};

struct layout_search {
    struct layout_choices all;
    const struct cost_model *model;
    double tolerance;        /* fraction of the step time by which a result may miss the optimum */
    int64_t max_simulations; /* 0: no limit */
    /* Results, the fastest first. */
    struct found_layout best[LAYOUT_SEARCH_BEST];
    int count;
    int64_t considered, too_large, simulated;
    bool is_cut; /* max_simulations was reached: better layouts may exist */
};

/* Fills in the results; with count 0, none fits.  Errors as trainer_plan. */
enum status layout_search_run(struct layout_search *s);
/* Checks a layout exactly and estimates its step time; *fits false: it breaks a rule or does not
 * fit the memory.  Errors as trainer_plan. */
enum status layout_search_evaluate(const struct layout_search *s, const struct layout_choice *x,
                                   struct layout_cost *cost, bool *fits);
