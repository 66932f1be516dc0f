/* sets.h -- the instruction sets that this program has kernels for.
 *
 * One program runs on every processor of its architecture: the Makefile compiles kernels/ once for
 * each set, and the best one that the processor has is chosen when the program starts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

/* Weakest first.  avx2: x86-64-v3.  avx512: x86-64-v4, bf16 products where the processor has them.
 * amx: tiles of bf16 beside avx512. */
#if defined(__x86_64__)
#define CPU_ISAS(X) X(avx2) X(avx512) X(amx)
#else
#define CPU_ISAS(X) X(generic)
#endif

struct cpu_set {
    const char *name;
    struct ops ops;
    double (*burst)(enum dtype dtype, long rounds); /* these two: see kernels.h */
    double (*microkernel_bench)(const void *panels, size_t bytes, long rounds);
};

/* Set i, weakest first; NULL past the last. */
const struct cpu_set *cpu_set_at(int i);
/* Whether this processor, and the system on it, can run the set's kernels. */
bool cpu_set_runs(const struct cpu_set *s);
/* The best set that runs here; NULL if none does. */
const struct cpu_set *cpu_set_best(void);
