/* vendor_attention.h (gpu) -- attention by the vendor's library: cuDNN with CUDA, none otherwise.
 *
 * Memory   The library's workspace comes from the queue's scratch; plans belong to the queue. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "ops/attention.h"

struct text;

#if defined(GPU_CUDA)
/* *done: whether the library computed the result; false where it has no engine for the shape.
 * During a sizing pass: builds plans and reserves scratch.  DEVICE: cuDNN failed. */
enum status GPU_NAME(vendor_attention_forward)(const struct attention *a,
                                               const struct attention_fwd *io, struct queue *queue,
                                               bool *done);
enum status GPU_NAME(vendor_attention_backward)(const struct attention *a,
                                                const struct attention_bwd *io, struct queue *queue,
                                                bool *done);
/* Compares the library's results with those of our own kernels.  UNSUPPORTED: it is not installed,
 * computes nothing, or its results differ. */
enum status GPU_NAME(vendor_attention_check)(struct queue *queue);
/* Appends the library and its version.  UNSUPPORTED: it is not installed, or too old. */
enum status GPU_NAME(vendor_attention_library)(struct text *out);
/* Frees the handle and the plans; the stream must be idle. */
void GPU_NAME(vendor_attention_close)(struct queue *queue);
#else
static inline enum status GPU_NAME(vendor_attention_forward)(const struct attention *a,
                                                             const struct attention_fwd *io,
                                                             struct queue *queue, bool *done)
{
    (void)a, (void)io, (void)queue;
    *done = false;
    return STATUS_OK;
}
static inline enum status GPU_NAME(vendor_attention_backward)(const struct attention *a,
                                                              const struct attention_bwd *io,
                                                              struct queue *queue, bool *done)
{
    (void)a, (void)io, (void)queue;
    *done = false;
    return STATUS_OK;
}
static inline enum status GPU_NAME(vendor_attention_check)(struct queue *queue)
{
    (void)queue;
    return STATUS_OK;
}
static inline enum status GPU_NAME(vendor_attention_library)(struct text *out)
{
    (void)out;
    return STATUS_OK;
}
static inline void GPU_NAME(vendor_attention_close)(struct queue *queue) { (void)queue; }
#endif
