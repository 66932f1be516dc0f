/* estimate.h -- the time of a step, from the simulated clocks of the ranks, and its bottleneck.
 *
 * With a pipeline every stage has its clocks, and the schedule is replayed with their times.
 *
 * Units    Seconds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/schedule.h"
#include "perf/sim_clock.h"

/* What may limit a step: name, also in JSON; what would help. */
#define RESOURCE_LIST(X)                                                                           \
    X(matmul, "faster matrix multiplies")                                                          \
    X(memory_rate, "faster memory")                                                                \
    X(node_links, "faster links within a node")                                                    \
    X(network, "a faster network between nodes")                                                   \
    X(host_link, "a faster link between device and host memory")                                   \
    X(latency, "half the latency of transfers")                                                    \
    X(pipeline, "twice as many microbatches through the pipeline")                                 \
    X(memory_bytes, "it needs more memory than is available")

enum resource {
#define X(name, text) RESOURCE_##name,
    RESOURCE_LIST(X)
#undef X
        RESOURCE_COUNT
};
const char *estimate_resource_name(enum resource r);
const char *estimate_resource_advice(enum resource r);

/* The hardware with a resource twice as fast; unchanged for pipeline and memory_bytes. */
struct hardware estimate_faster_hardware(const struct hardware *h, enum resource r);

/* When the last action of a valid schedule ends.  forward, backward: seconds of a chunk on each
 * rank; p2p: of a message from a stage to the next. */
double estimate_pipeline(const struct schedule *s, const double *forward, const double *backward,
                         double p2p);

struct estimate {
    double step_s;
    /* The parts of the slowest rank's step; their sum is step_s. */
    double matmul_s, memory_s, exposed_s[GROUP_COUNT], host_s, bubble_s, update_s;
    enum resource limit; /* the bottleneck: doubling it would shorten the step most */
    double saved;        /* by that fraction */
};

/* `clocks`: RESOURCE_COUNT of each rank of a pipeline (s->pp of them, or 1).  Clock i ran on
 * estimate_faster_hardware(.., i); the last clock is the baseline. */
void estimate_make(struct estimate *e, const struct sim_clock *clocks, const struct schedule *s);
/* The times alone, from one clock of each rank, which ran on the hardware itself. */
void estimate_make_time(struct estimate *e, const struct sim_clock *clocks,
                        const struct schedule *s);
