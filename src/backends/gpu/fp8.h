/* fp8.h (gpu) -- quantization to FP8 bytes, for devices whose matrix units multiply FP8 (struct
 * gpu_queue: native_fp8).  Other devices keep the rounded values as bf16.
 *
 * Memory   The row-major bytes, then the column-major ones, in the space of as many bf16
 *          (kernels/fp8.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"

#include <stddef.h>

struct quantize;
struct quantize_io;
struct queue;

/* quantize of ops/float8.h, writing FP8. */
enum status GPU_NAME(fp8_quantize)(const struct quantize *a, const struct quantize_io *io,
                                   struct queue *queue);

/* The column-major bytes of a quantized tensor; NULL stays NULL. */
static inline const void *fp8_transposed(const void *y_n, int rows, int columns)
{
    return y_n ? (const unsigned char *)y_n + (size_t)rows * (size_t)columns : NULL;
}
