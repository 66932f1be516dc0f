/* measure.h -- what `llamero bench` measures: the machine's ceilings, each operation beside the
 * ceiling that bounds it, and whole steps.
 *
 * Units    Seconds, FLOP/s, bytes/s.  A share is the median of the ratios of each round, in which
 *          the ceiling is measured right before and after: the clock wanders, and neighbours take
 *          their part of both. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/stream.h"
#include "data/loader.h"
#include "perf/calls.h"
#include "train/machine.h"

enum { THREADS_ONE, THREADS_ALL, THREADS_COUNT };

/* FLOP/s, name, what it is */
#define CEILING_LIST(X)                                                                            \
    X(f32, "float32 in registers")                                                                 \
    X(bf16, "bfloat16 in registers")                                                               \
    X(panel_l1, "panels from level 1")                                                             \
    X(panel_l2, "panels from level 2")

enum ceiling {
#define X(name, text) CEILING_##name,
    CEILING_LIST(X)
#undef X
        CEILING_COUNT
};
const char *ceiling_name(enum ceiling c);
const char *ceiling_text(enum ceiling c);

struct ceilings {
    double flops[CEILING_COUNT][THREADS_COUNT];
    double bytes[STREAM_COUNT][THREADS_COUNT];
};
/* Memory: `size` bytes of touched memory, far more than the caches. */
enum status ceilings_measure(struct ceilings *c, const struct queue *queue, void *memory,
                             size_t size);

/* One call of a step, alone and within the step. */
struct call_timing {
    double seconds, rate; /* alone: the median, with operands out of memory; FLOP/s or bytes/s */
    double share;         /* of the ceiling */
    double tuned;         /* its seconds over the usual way's: the median of the rounds' ratios;
                             0: all ways are the usual one */
    double usual_seconds; /* the usual way's median; 0 as before */
    double step_seconds;  /* of all its calls in a step, the mean of the steps */
};

/* Chooses the ways of the products, where the machine is tuned. */
enum status operations_prepare(const struct call_list *l, const struct machine *m);
/* `timings`, one for each of l->calls, gets all but step_seconds; with `tuned`, products are also
 * timed the usual way, in turn.  Leaves the queue's scratch
 * empty.  MEMORY: its buffers. */
enum status operations_measure(struct call_timing *timings, const struct call_list *l,
                               const struct machine *m, void *memory, size_t size, int rounds,
                               bool tuned);

struct step_timing {
    int64_t tokens;      /* of a step */
    double *seconds;     /* of each step; owned */
    double median;       /* of them */
    double zero_seconds; /* the gradients' filling with zeros, the mean of the steps */
    double mean;         /* of seconds: what the parts and the rest add up to */
    double rest;         /* of it that is no part: sums of the loss, between operations */
    double flops;        /* of a step, by model_flops_per_token */
    double flops_causal; /* the same, with causal attention counted at half */
    double burst_flops;  /* the median of the bursts around the steps */
    double burst_share;  /* of `flops` a second in them */
};
/* Steps on random ids, after one that is not timed; fills the timings' step_seconds. */
enum status step_measure(struct step_timing *s, struct call_timing *timings,
                         const struct call_list *l, const struct config *c,
                         const struct model_shape *shape, const struct machine *m, int rounds);
void step_timing_release(struct step_timing *s);

double median(double *values, int count); /* which it sorts */
