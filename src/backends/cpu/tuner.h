/* tuner.h -- the GEMM autotuner: times the blockings of each shape and remembers the fastest.
 *
 * Order    Shapes are tuned during a sizing pass, which delays no step.  The first GEMM after it
 *          logs a summary and saves the file.  A shape that no sizing pass met gets the default.
 * Memory   Operands and scratch of one GEMM while it is timed.  A sizing pass precedes the
 *          allocation of the run's own memory.
 * Bits     All blockings give the same (gemm_blocking.h), so ranks and runs may choose different
 *          ones. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

typedef enum status gemm_call(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                              const struct gemm_buffers *io, struct queue *queue);

struct tuner;
/* `clock` returns seconds: clock_monotonic_s, or a test's. */
struct tuner *tuner_open(const char *path, const struct tuned_device *d, double (*clock)(void));
void tuner_close(struct tuner *t); /* saves pending results */
void tuner_use(struct tuner *t, bool use);
/* `t` NULL: the default blocking. */
const struct gemm_blocking *tuner_blocking(struct tuner *t, const struct gemm_shape *s,
                                           gemm_call *multiply, const struct queue *queue);
