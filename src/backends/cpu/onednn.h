/* onednn.h -- f32 GEMM by oneDNN, which picks the best ISA of the processor, unless it is limited.
 *
 * A matmul primitive is created once per shape and cached by the queue.
 * Memory   The queue's scratch.  On Intel processors the fastest implementation also packs operands
 *          into memory of its own, from malloc during each GEMM; a sizing pass estimates it in
 *          queue->library_bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/gemm_shape.h"
#include "base/text.h"
#include "tensor/queue.h"

/* The library's engine and the primitives created so far. */
struct onednn;

/* Limits oneDNN to the ISA of a name of the Makefile's ISAS; another name: no limit.  It holds for
 * the process; call it before the first GEMM, after which it has no effect. */
void onednn_limit_isa(const char *name);
/* DEVICE: oneDNN cannot be initialized. */
enum status onednn_open(struct onednn **out);
void onednn_close(struct onednn *library);

/* dtype and out must be F32.  DEVICE: oneDNN has no such implementation. */
enum status onednn_gemm(struct onednn *library, const struct gemm_shape *s,
                        const struct gemm_buffers *io, struct queue *queue);
/* oneDNN's version, such as "2.6.3". */
void onednn_version(struct text *version);
