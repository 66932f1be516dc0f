/* cpu.h -- the CPU backend: reference kernels in plain C, which are the specification, and
 * optimized kernels for each ISA.
 *
 * Order    A call returns when its work is done.
 * Memory   Kernels use the queue's scratch arena and allocate nothing, except f32 GEMMs on Intel
 *          CPUs (onednn.h).  oneDNN primitives are created during the sizing pass, or by the first
 *          call, and cached by the queue. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/queue.h"

extern const struct ops ops_cpu_reference;

/* Returns the kernels for an ISA of the Makefile's ISAS, for "reference", or for "auto", the best
 * ISA that this processor supports.  UNSUPPORTED: this processor or this build lacks them. */
enum status cpu_ops_find(const char *name, const struct ops **out);

/* num_threads 0: one per core that this process may use.  MEMORY: cannot allocate scratch_bytes. */
enum status cpu_queue_open(struct queue **out, int num_threads, size_t scratch_bytes);
void cpu_queue_close(struct queue *queue);
/* Pins each thread to a core of its own if there are exactly as many threads as cores.  With fewer
 * threads the kernel's scheduler knows better which cores are free. */
void cpu_queue_pin(const struct queue *queue);

/* Turns on GEMM autotuning.  From here on a sizing pass times each bf16 GEMM shape it meets with
 * every blocking (gemm_blocking.h), all of which give the same bits, and calls use the fastest.
 * Results are cached in the file (tensor/tuning.h).  Tuning takes a few seconds at most; shapes
 * that do not fit that budget are left to later runs.  `processor` is the processor's name. */
void cpu_queue_tune(struct queue *queue, const char *path, const char *backend,
                    const char *processor);
/* Selects the tuned blockings, or the default one, as without cpu_queue_tune. */
void cpu_queue_use_tuning(struct queue *queue, bool use);

#define OP(name, what, io)                                                                         \
    enum status reference_##name(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP
