/* peak.h -- what the cores can do at best, measured: the ceiling that MFU divides by, and two below
 * it that say what the caches let through.
 *
 * A burst of multiply-adds of the best instruction set, on registers only: AMX tiles or AVX-512 dot
 * products for bf16, or f32 fused multiply-adds where those are faster.
 * Its tiles hold zeros, which draw the least power: with numbers like a model's a Xeon does 85 % of
 * it.  What is fed from the caches is such numbers.
 * Units    FLOP/s over all threads of the queue. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/sets.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"

/* The best of several bursts, since other processes can only take away; about 100 ms. */
double cpu_peak_flops(const struct queue *queue, enum dtype dtype);

/* A short burst, to be run right before and after what is compared with it: a clock that wanders,
 * and neighbours, then meet both. */
struct cpu_burst {
    const struct cpu_set *isa; /* the best that runs here */
    enum dtype dtype;          /* of the faster burst */
    int num_threads;
    long rounds;
};
/* Bursts of at least `seconds`. */
struct cpu_burst cpu_burst_make(const struct queue *queue, enum dtype dtype, double seconds);
double cpu_burst_run(const struct cpu_burst *b);

/* The set's product of two panels where `bytes` of them pass by in turn on each thread: out of the
 * cache that holds so many.  The best of several, as above.  MEMORY: not even so few. */
enum status cpu_feed_flops(const struct queue *queue, const struct cpu_set *isa, size_t bytes,
                           double *flops);
/* Bytes of a core's cache of level 1 (data) or 2; a usual size where the system does not say. */
size_t cpu_cache_bytes(int level);
