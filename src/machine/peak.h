/* peak.h -- measures the peak FLOP/s of the CPU's cores: the ceiling that MFU divides by, and how
 * much of it the GEMM micro-kernel reaches with operands in L1 or L2.
 *
 * The peak is a burst of multiply-adds on registers with the ISA of `ops`, or with the best ISA if
 * `ops` is NULL or of none: AMX tiles or AVX-512 dot products for bf16, f32 FMAs where those are
 * faster.  AMX tiles hold zeros, which draw the least power: with values like those of a model a
 * Xeon reaches 85 % of it.  The micro-kernel is measured on such values.
 * Units    FLOP/s over all threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stddef.h>

/* The best of several bursts, since other processes can only slow one down; takes about 100 ms. */
double peak_measure_flops(const struct ops *ops, int num_threads, enum dtype dtype);

/* A short burst to run right before and after the code under test, so that clock changes and noisy
 * neighbors affect both alike. */
struct peak_burst {
    const struct isa *isa; /* NULL: this processor supports none */
    enum dtype dtype;      /* of the faster burst */
    int num_threads;
    long rounds;
};
/* Calibrates bursts of at least `seconds`. */
struct peak_burst peak_burst_make(const struct ops *ops, int num_threads, enum dtype dtype,
                                  double seconds);
double peak_burst_run(const struct peak_burst *b);

/* Runs the micro-kernel of the ISA over `bytes` of packed micro-panels per thread, so that
 * they stay in the cache level of that size.  The best of several runs, as above; 0 if this
 * processor supports no ISA.  MEMORY: cannot allocate the panels. */
enum status peak_measure_micro_kernel(const struct ops *ops, int num_threads, size_t bytes,
                                      double *flops);
/* Size of a core's L1 data cache or L2; a typical size if the system does not report one. */
size_t peak_cache_bytes(int level);
