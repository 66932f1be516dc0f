/* attention_check.h (gpu) -- compares a library's attention with our own kernels on a small input,
 * so that one that computes nothing, or something else, is found before it is used.
 *
 * Memory   Device memory and scratch of its own, some MiB, and what the library's plans need. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "ops/attention.h"

/* As cudnn_attention_forward and _backward: *done is false where it does not compute a shape. */
struct attention_library {
    void *context;
    enum status (*forward)(void *context, const struct attention *, const struct attention_fwd *,
                           struct queue *, bool *done);
    enum status (*backward)(void *context, const struct attention *, const struct attention_bwd *,
                            struct queue *, bool *done);
};

/* Masks besides the causal one. */
struct attention_masks {
    bool documents, window;
};

/* Forward of one causal row in bf16, with two heads of head_size elements, of two documents or with
 * a sliding window as `masks` says, and backward if the library computes that.  UNSUPPORTED: it has
 * no forward, or its results differ.  MEMORY: not enough device memory. */
enum status GPU_NAME(attention_check)(const struct attention_library *l,
                                      struct attention_masks masks, int head_size,
                                      struct queue *queue);
