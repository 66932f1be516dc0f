/* cpu.h -- the CPU backend: plain loops that are the specification, and faster kernels for each
 * instruction set.
 *
 * Order    A call returns when its work is done.
 * Memory   Kernels take working memory from the queue's scratch arena and allocate nothing;
 * oneDNN's compiled products are made by a measuring pass (or by the first call) and kept. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/queue.h"

extern const struct ops ops_cpu_reference;

/* The kernels for an instruction set of sets.h, "reference", or "auto": the best this processor
 * has.  UNSUPPORTED: the processor or this program does not have them. */
enum status cpu_ops_find(const char *name, const struct ops **out);

/* MEMORY: no scratch of that size.  num_threads 0: the cores this process may use. */
enum status cpu_queue_open(struct queue **out, int num_threads, size_t scratch_bytes);
void cpu_queue_close(struct queue *queue);
/* Each thread stays on a core of its own, if there are as many as the process has cores; with fewer
 * it is the system that knows which cores are free. */
void cpu_queue_pin(const struct queue *queue);

/* From here on a measuring pass times each product of bf16 that it meets, in all ways that have the
 * same bits, and calls take the fastest.  What was found is kept in the file (tensor/tuning.h) and
 * taken from there; it takes some seconds at most, and what they were not enough for a later run
 * times.  `processor`: its name. */
void cpu_queue_tune(struct queue *queue, const char *path, const char *backend,
                    const char *processor);
/* Whether the fastest ways are taken; else the usual one, as without cpu_queue_tune. */
void cpu_queue_use_tuning(struct queue *queue, bool use);

#define OP(name, what, io)                                                                         \
    enum status reference_##name(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP
