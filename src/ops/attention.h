/* attention.h -- grouped-query attention (GQA), forward and backward, without storing the T x T
 * scores or probs, as FlashAttention does.
 *
 * Axes     B sequences, T queries and S keys each, H query heads, G key/value heads, K head size;
 *          query head h uses key/value head h / (H/G).
 * Units    scale multiplies q.k (usually 1/sqrt(K)); lse is in nats.
 * Memory   q, k, v have strides in elements from token to token, so they may be slices of a fused
 *          QKV row; out and dout are dense [B, T, H, K].  The caller owns every buffer.
 *          Packed: q, k, v are columns of one packed tensor of q_stride columns, or of three
 *          tensors, and their gradients likewise.
 * Masks    Query t is at key position t + S - T.  Causal: it attends to keys up to its own
 *          position, with a sliding window only to the last `window` of these.  Document mask: with
 *          start_BT and end_BT it attends only to keys in [start_BT, end_BT), the bounds of its
 *          document, or of the part of it in these keys.  A query without visible keys gets out 0
 *          and lse -inf.
 * Parts    Keys may come in parts, one call each, as in ring attention: FIRST_KEYS, then
 *          MORE_KEYS.  Each key is in one part.  Forward updates out and lse to cover all keys so
 *          far; dq accumulates; dk and dv are the part's own.  In parts, out of forward, dq, dk,
 *          dv are f32 and dq is dense like out.  Backward of a part needs out (of `dtype`) and lse
 *          over all keys.  `rectangle` may describe what start_BT and end_BT say, for libraries
 *          that do not take bounds.
 * Order    Softmax in f32; accumulation in a fixed order, so bits do not depend on threads.  With
 *          BF16, a kernel may sum the probs after rounding them for the GEMM with v: the weights
 *          of v still add up to 1, and lse is within 0.01. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum attention_keys { ALL_KEYS, FIRST_KEYS, MORE_KEYS };

/* The same pairs in every row: queries first_query .. T - 1 attend to keys 0 .. num_keys - 1, with
 * `causal` (T, S and num_keys are equal, first_query is 0) only up to their own position.  Queries
 * before first_query attend to none. */
struct attention_rectangle {
    int first_query;
    int num_keys; /* 0: the bounds are not a rectangle, or unknown */
};

struct attention {
    int B, T, S, H, G, K;
    size_t q_stride, kv_stride; /* elements from one token to the next; also of gradients */
    float scale;
    bool causal;
    enum dtype dtype; /* of q, k, v, out and their gradients */
    enum attention_keys keys;
    int window; /* causal: keys that a query attends to, its own position included; 0: all */
    /* In parts: the caller guarantees that the bounds agree. */
    struct attention_rectangle rectangle;
    float visible;  /* fraction of visible query-key pairs, for FLOP estimates; 0: unknown */
    bool is_packed; /* all tensors are packed (ops.h); requires attention_can_pack */
    /* Packed: pointers are to the beginning of tensors, queries are at column 0, and keys and
     * values at these columns of theirs. */
    size_t k_column, v_column;
};
struct attention_fwd {
    const void *q_BTHK, *k_BSGK, *v_BSGK;
    const int32_t *start_BT, *end_BT; /* document mask; both NULL: none */
    void *out_BTHK;
    float *lse_BHT; /* log-sum-exp of each row of scores, for backward */
};
struct attention_bwd {
    const void *q_BTHK, *k_BSGK, *v_BSGK, *out_BTHK, *dout_BTHK;
    const int32_t *start_BT, *end_BT;
    const float *lse_BHT;
    void *dq_BTHK, *dk_BSGK, *dv_BSGK; /* replaced; MORE_KEYS: dq accumulates */
};

/* out = softmax(scale q k^T + mask) v.  SHAPE: a size below 1, H not a multiple of G, S < T with a
 * causal mask, a window without one, or strides shorter than a row. */
enum status attention_forward(const struct ops *, const struct attention *,
                              const struct attention_fwd *, struct queue *);
enum status attention_backward(const struct ops *, const struct attention *,
                               const struct attention_bwd *, struct queue *);

/* True if the backend packs the tensors of attention of these sizes; ignores is_packed. */
bool attention_can_pack(const struct ops *, const struct attention *);

/* log(e^a + e^b): merges the log-sum-exp over two parts of the keys. */
static inline float lse_merge(float a, float b)
{
    float high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1pf(expf(low - high));
}
