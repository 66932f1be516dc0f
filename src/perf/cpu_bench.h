/* cpu_bench.h -- what `llamero bench` measures on a CPU: the machine's ceilings, each operation
 * compared with the ceiling that bounds it, and whole steps.
 *
 * Units    Seconds, FLOP/s, bytes/s.  A share of a ceiling is the median of per-round ratios; each
 *          round measures the ceiling right before and after, as clock frequency and other
 *          processes change over time and affect both. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/loader.h"
#include "machine/bandwidth.h"
#include "perf/op_calls.h"
#include "train/machine.h"

enum { THREADS_ONE, THREADS_ALL, THREADS_COUNT };

/* Ceilings in FLOP/s: name in JSON, description in the table. */
#define CEILING_LIST(X)                                                                            \
    X(f32, "float32 in registers")                                                                 \
    X(bf16, "bfloat16 in registers")                                                               \
    X(panel_l1, "GEMM panels from L1")                                                             \
    X(panel_l2, "GEMM panels from L2")

enum ceiling {
#define X(name, text) CEILING_##name,
    CEILING_LIST(X)
#undef X
        CEILING_COUNT
};
const char *cpu_bench_ceiling_name(enum ceiling c);
const char *cpu_bench_ceiling_text(enum ceiling c);

struct ceilings {
    double flops[CEILING_COUNT][THREADS_COUNT];
    double bytes[BANDWIDTH_COUNT][THREADS_COUNT];
};
/* Measures with the ISA of `ops`.  `memory`: `size` bytes, touched, far more than the caches. */
enum status cpu_bench_measure_ceilings(struct ceilings *c, const struct ops *ops, int num_threads,
                                       void *memory, size_t size);

/* The model to measure, and how often. */
struct cpu_bench {
    const struct config *config;
    const struct machine *machine;
    const struct model_shape *shape;
    const struct op_calls *calls;
    void *memory; /* `size` touched bytes, far more than the caches; borrowed */
    size_t size;
    int rounds;
};

/* One call of a step, timed alone and within the step. */
struct call_timing {
    double seconds, rate;   /* alone: the median, with cold caches; FLOP/s or bytes/s */
    double share;           /* of the ceiling */
    double tuned;           /* time of the autotuned blocking over the default one: the median
                               of per-round ratios; 0: not tuned */
    double default_seconds; /* the median with the default blocking; 0: not tuned */
    double step_seconds;    /* all its calls in a step; the mean of the steps */
};

/* Runs every call as a sizing pass, which makes the tuner choose each GEMM's blocking. */
enum status cpu_bench_autotune(const struct cpu_bench *b);
/* Times each call alone.  `timings`, one for each of b->calls, get all fields except step_seconds;
 * with device.tune_gemm, GEMMs alternate with the default blocking.  Leaves the queue's scratch
 * empty.  MEMORY: for the buffers. */
enum status cpu_bench_operations(const struct cpu_bench *b, struct call_timing *timings);

struct step_timing {
    int64_t tokens;      /* per step */
    double *seconds;     /* of each step; owned */
    double median;       /* of `seconds` */
    double mean;         /* of `seconds`, and the sum of all parts and `rest` */
    double zero_seconds; /* zeroing gradients; mean of the steps */
    double rest;         /* mean time outside operations: loss reduction, gaps between calls */
    double flops;        /* per step, by model_flops_per_token */
    double flops_causal; /* per step, by model_causal_flops_per_token */
    double burst_flops;  /* peak FLOP/s in short bursts around the steps; median */
    double burst_share;  /* FLOP/s of a step over that of the bursts around it; median */
};
/* Times steps on random token IDs after a warm-up step; fills in the timings' step_seconds. */
enum status cpu_bench_step(const struct cpu_bench *b, struct call_timing *timings,
                           struct step_timing *s);
void cpu_bench_step_release(struct step_timing *s);
