/* kernels.h -- the fast kernels, compiled once for each instruction set of sets.h.
 *
 * Each file of this folder is compiled for every set, with CPU_SET defined as its name, so whatever
 * it shows to other files is named by KERNEL: avx2_rope, avx512_rope.  The loops are plain C that
 * the compiler turns into each set's vectors; where that is not enough, a file has a path for a
 * set.
 * Order    Every sum is taken in pieces whose size does not depend on the number of threads, so
 *          results have the same bits on any number of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/sets.h"

#if !defined(CPU_ISA) /* a reader of this header alone, such as an editor */
#define CPU_ISA generic
#endif
#define KERNEL_JOIN(set, name) set##_##name
#define KERNEL_NAME(set, name) KERNEL_JOIN(set, name)
#define KERNEL(name)           KERNEL_NAME(CPU_ISA, name)

extern const struct cpu_set KERNEL(set);

#define OP(name, what, io)                                                                         \
    enum status KERNEL(name)(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP

/* For struct ops. */
bool KERNEL(attention_keeps)(const struct attention *a);

/* FLOPs that a burst of multiply-adds in registers does on one thread: the most this set can do. */
double KERNEL(burst)(enum dtype dtype, long rounds);
/* The same of products of panels: `bytes` of them, at least 8 KiB, pass by in every round. */
double KERNEL(microkernel_bench)(const void *panels, size_t bytes, long rounds);
