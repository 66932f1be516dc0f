/* product.h (cpu) -- matrix products of f32 by oneDNN, for every instruction set it knows.
 *
 * A product is compiled once for its kind and sizes and kept by the queue.
 * Memory   Of the queue's scratch.  On Intel's processors the fastest way packs operands into
 *          memory of its own: some tens of MB from malloc while a product runs, the same again the
 *          next time, which `plan` knows nothing of. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_shape.h"
#include "base/text.h"
#include "tensor/queue.h"

/* dtype and out are F32.  DEVICE: oneDNN has no such product here. */
enum status onednn_gemm(const struct gemm_shape *s, const struct gemm_buffers *io,
                        struct queue *queue);
/* "2.6.3": oneDNN's. */
void product_library_version(struct text *version);
