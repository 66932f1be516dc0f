/* attention.h -- grouped-query attention, forward and backward, never storing T x T.
 *
 * Axes     B sequences, T queries and S keys each, H query heads, G key/value heads, K head size;
 *          head h reads key/value head h / (H/G).
 * Units    scale multiplies q.k (usually 1/sqrt(K)); lse is in nats.
 * Memory   q, k, v have strides (elements) from token to token, so they may lie in one fused row;
 *          out and dout are dense [B, T, H, K].  The caller owns every buffer.
 *          Private: q, k, v are columns of one private tensor of q_stride columns, or of three; and
 *          so are their gradients.
 * Masks    Query t stands at key position t + S - T.  Causal: it sees keys up to its own position.
 *          With start/end it sees only keys in [start_BT, end_BT), the bounds of its document, or
 *          those of it that are here.  A query that sees none gets out 0 and lse -inf.
 * Parts    Where the keys are not all here at once they come part after part: FIRST_KEYS, then
 *          MORE_KEYS.  Then out, lse are those over the keys so far and dq is the sum over them,
 *          with out, dq, dk, dv in f32 and dq as dense as out; dk, dv are the part's own.  Backward
 *          of a part wants out (of dtype) and lse over all keys, and knows nothing of the others.
 *          A key is in one part.
 * Order    Softmax in f32; sums in a fixed order, so bits do not depend on threads.  Of BF16, odds
 *          may be summed as they are rounded for the product with v: out's weights add up to 1 all
 *          the same, and lse is within 0.01. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum attention_keys { ALL_KEYS, FIRST_KEYS, MORE_KEYS };

struct attention {
    int B, T, S, H, G, K;
    size_t q_stride, kv_stride; /* elements from a token to the next; the same for gradients */
    float scale;
    bool causal;
    enum dtype dtype; /* of q, k, v, out and their gradients */
    enum attention_keys keys;
    float seen; /* share of all pairs that the bounds leave; only for estimates, 0: not known */
    bool is_private; /* ops.h: all tensors; only where attention_may_be_private */
    /* Of private ones: pointers are to where tensors begin, and keys and values begin at these
     * columns of theirs; queries at 0. */
    size_t k_column, v_column;
};
struct attention_fwd {
    const void *q_BTHK, *k_BSGK, *v_BSGK;
    const int32_t *start_BT, *end_BT; /* both or neither NULL */
    void *out_BTHK;
    float *lse_BHT; /* log-sum-exp of each row, kept for backward */
};
struct attention_bwd {
    const void *q_BTHK, *k_BSGK, *v_BSGK, *out_BTHK, *dout_BTHK;
    const int32_t *start_BT, *end_BT;
    const float *lse_BHT;
    void *dq_BTHK, *dk_BSGK, *dv_BSGK; /* replaced; MORE_KEYS: dq is added to */
};

/* out = softmax(scale q k^T + mask) v.  SHAPE: a size below 1, H not a multiple of G, causal with
 * S < T. */
enum status attention_forward(const struct ops *, const struct attention *,
                              const struct attention_fwd *, struct queue *);
enum status attention_backward(const struct ops *, const struct attention *,
                               const struct attention_bwd *, struct queue *);

/* Of these sizes, whatever is_private says. */
bool attention_may_be_private(const struct ops *, const struct attention *);

/* log(e^a + e^b): of the keys of two parts. */
static inline float lse_join(float a, float b)
{
    float high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1pf(expf(low - high));
}
