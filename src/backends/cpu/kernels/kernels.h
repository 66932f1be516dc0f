/* kernels.h -- the optimized kernels, compiled once for each ISA of the Makefile's ISAS.
 *
 * Each file of this folder is compiled for every ISA, with CPU_ISA defined as its name, so its
 * exported names go through KERNEL: avx2_rope, avx512_rope.  Most loops are plain C that the
 * compiler vectorizes for each ISA; where that is not enough, a file has code for one ISA.
 * Order    Every reduction is split at fixed sizes that do not depend on the number of threads, so
 *          results have the same bits on any number of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/isa.h"

#if !defined(CPU_ISA) /* for readers of this header alone, such as an editor */
#define CPU_ISA generic
#endif
#define KERNEL_JOIN(isa, name) isa##_##name
#define KERNEL_NAME(isa, name) KERNEL_JOIN(isa, name)
#define KERNEL(name)           KERNEL_NAME(CPU_ISA, name)

extern const struct isa KERNEL(isa);

#define OP(name, what, io)                                                                         \
    enum status KERNEL(name)(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP

/* For struct ops. */
bool KERNEL(attention_can_pack)(const struct attention *a);

/* Runs a burst of multiply-adds in registers on one thread and returns its FLOPs: the ISA's
 * peak. */
double KERNEL(burst)(enum dtype dtype, long rounds);
/* The same for the micro-kernel: each round multiplies `bytes` of packed panels, at least 8 KiB. */
double KERNEL(microkernel_bench)(const void *panels, size_t bytes, long rounds);
