/* estimate.h -- how long a step takes, from the clocks of the ranks it needs; and what limits it.
 *
 * Where there is a pipeline each of its ranks has its clocks, and when what is done follows from
 * playing the schedule with the times they say.
 *
 * Units    Seconds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/clock.h"
#include "parallel/schedule.h"

/* What a step may wait for: name, what would help */
#define RESOURCE_LIST(X)                                                                           \
    X(products, "faster products")                                                                 \
    X(memory_rate, "faster memory")                                                                \
    X(node_links, "faster links within a node")                                                    \
    X(network, "a faster network between nodes")                                                   \
    X(latency, "half the latency of transfers")                                                    \
    X(pipeline, "twice the micro-batches through the pipeline")                                    \
    X(memory_bytes, "it needs more memory than there is")

enum resource {
#define X(name, text) RESOURCE_##name,
    RESOURCE_LIST(X)
#undef X
        RESOURCE_COUNT
};
const char *resource_name(enum resource r);
const char *resource_text(enum resource r);

/* The same with a resource twice as fast; with pipeline or memory_bytes, unchanged. */
struct hardware hardware_faster(const struct hardware *h, enum resource r);

/* When the last action of a schedule is over, which passed its check.  forward, backward: seconds
 * of a chunk on each rank; message: from a stage to the next. */
double estimate_pipeline(const struct schedule *s, const double *forward, const double *backward,
                         double message);

struct estimate {
    double step_s;
    /* Of the rank with the most to do; they add up to the step. */
    double products_s, memory_s, exposed_s[GROUP_COUNT], bubble_s, update_s;
    enum resource limit; /* what would shorten the step most, were there twice as much of it */
    double saved;        /* the share of the step that it would take away */
};

/* The clocks of each rank of a pipeline (s->pp, or 1), RESOURCE_COUNT of each: clock i ran on
 * hardware_faster(.., i), the last one on the hardware as it is. */
void estimate_make(struct estimate *e, const struct clock *clocks, const struct schedule *s);
