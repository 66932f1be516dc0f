/* tuner.h -- times the ways of a product, and remembers the fastest.
 *
 * Order    A way is chosen in a measuring pass, which has no step to hold up; the first product
 *          after it tells what that took, and keeps it in the file.  A product that no measuring
 *          pass met goes the usual way.
 * Memory   While a product is timed: its operands and its scratch.  A measuring pass comes before a
 *          run takes its own.
 * Bits     All ways have the same (way.h), so ranks and runs need not choose alike. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_blocking.h"
#include "backends/cpu/gemm_shape.h"
#include "tensor/queue.h"
#include "tensor/tuning.h"

typedef enum status gemm_call(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                              const struct gemm_buffers *io, struct queue *queue);

struct tuner;
/* `clock` gives seconds: clock_monotonic_s. */
struct tuner *tuner_open(const char *path, const struct tuned_device *d, double (*clock)(void));
void tuner_close(struct tuner *t); /* keeps what is not kept yet */
void tuner_use(struct tuner *t, bool use);
/* `t` NULL: the usual way. */
const struct gemm_blocking *tuner_blocking(struct tuner *t, const struct gemm_shape *s,
                                           gemm_call *multiply, const struct queue *queue);
