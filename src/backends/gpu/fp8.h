/* eight_bits.h (gpu) -- tensors of numbers of eight bits, where the device multiplies such numbers
 * (struct gpu_queue has `eight_bits`); where it does not, they are bf16.
 *
 * Memory   Rows, then columns (kernels/eight_bits.h), in the bytes of as many bf16. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"

#include <stddef.h>

struct quantize;
struct quantize_io;
struct queue;

/* quantize (ops/float8.h), of such numbers. */
enum status GPU_NAME(eight_bits_quantize)(const struct quantize *a, const struct quantize_io *io,
                                          struct queue *on);

/* Of what it made: n numbers, column after column; NULL stays NULL. */
static inline const void *eight_bits_turned(const void *y_n, int rows, int columns)
{
    return y_n ? (const unsigned char *)y_n + (size_t)rows * (size_t)columns : NULL;
}
