/* attention_part.h (gpu) -- a part of the keys, as in ring attention, by a library that knows
 * neither parts nor bounds: it computes the rectangle of attention.h by itself, and kernels merge
 * its results with those of earlier parts.
 *
 * Axes     Those of attention.h; a rectangle has R = T - first_query queries and C = num_keys keys.
 * Memory   The queue's scratch.  Forward 2 B R H K + 4 B R H bytes, backward 2 B R H K + 4 B C G K
 *          and, unless R = T, 4 B R H; and what the library needs.
 * Order    The library rounds out, dq, dk and dv of a part to bf16; sums over parts are f32. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"

#if defined(__cplusplus)
extern "C" {
#endif
#include "ops/attention.h"

/* As the slots of ops.def, without bounds: *done is false where the library does not compute a
 * shape.  During a sizing pass it builds plans and reserves scratch.  has_plan: whether it computes
 * a rectangle, if buffers are aligned; outside a sizing pass it returns what it returned there.
 * A shape with a rectangle has keys == ALL_KEYS, and the library computes only the rectangle: q, k,
 * v, dout and backward's out are whole rows; out and lse of forward, lse of backward, dq, dk and dv
 * are dense tensors [B, R, H, K], [B, H, R] and [B, C, G, K]. */
struct attention_library {
    void *context;
    bool (*has_plan)(void *context, const struct attention *, bool backward, const struct queue *);
    enum status (*forward)(void *context, const struct attention *, const struct attention_fwd *,
                           struct queue *, bool *done);
    enum status (*backward)(void *context, const struct attention *, const struct attention_bwd *,
                            struct queue *, bool *done);
};

/* Attention of FIRST_KEYS or MORE_KEYS.  *done: false, and nothing is written, if the shape has no
 * rectangle, the library does not compute it, or buffers are not aligned to 16 bytes. */
#define ATTENTION_PART_BACKEND(prefix)                                                             \
    enum status prefix##_attention_part_forward(                                                   \
        const struct attention_library *l, const struct attention *a,                              \
        const struct attention_fwd *io, struct queue *queue, bool *done);                          \
    enum status prefix##_attention_part_backward(                                                  \
        const struct attention_library *l, const struct attention *a,                              \
        const struct attention_bwd *io, struct queue *queue, bool *done);
ATTENTION_PART_BACKEND(gpu)
ATTENTION_PART_BACKEND(gpu_emu32)
ATTENTION_PART_BACKEND(gpu_emu64)
#undef ATTENTION_PART_BACKEND
#if defined(__cplusplus)
}
#endif
