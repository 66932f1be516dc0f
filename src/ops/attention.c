// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

static enum status check(const struct ops *ops, const struct attention *a)
{
    if (a->B < 1 || a->T < 1 || a->K < 1 || a->G < 1 || a->H < 1)
        FAIL(SHAPE, "attention: B %d, T %d, H %d, G %d, K %d: each must be at least 1", a->B, a->T,
             a->H, a->G, a->K);
    if (a->H % a->G)
        FAIL(SHAPE, "attention: %d query heads are not a multiple of %d key/value heads", a->H,
             a->G);
    if (a->S < 1 || (a->causal && a->S < a->T))
        FAIL(SHAPE,
             "attention: %d keys for %d queries: need at least 1, and with a causal mask "
             "at least as many keys as queries",
             a->S, a->T);
    if (a->q_stride < (size_t)a->H * (size_t)a->K || a->kv_stride < (size_t)a->G * (size_t)a->K)
        FAIL(SHAPE, "attention: strides %zu and %zu are shorter than a row", a->q_stride,
             a->kv_stride);
    if (a->window < 0 || (a->window && !a->causal))
        FAIL(SHAPE, "attention: window %d%s: must be at least 0, and requires a causal mask",
             a->window, a->causal ? "" : " without a causal mask");
    const struct attention_rectangle *r = &a->rectangle;
    BUG_IF(r->num_keys && (a->keys == ALL_KEYS || a->window));
    BUG_IF(r->num_keys < 0 || r->num_keys > a->S || r->first_query < 0 || r->first_query >= a->T);
    BUG_IF(r->num_keys && a->causal && (a->S != a->T || r->num_keys < a->S || r->first_query));
    BUG_IF(a->is_packed && !attention_can_pack(ops, a));
    return STATUS_OK;
}

bool attention_can_pack(const struct ops *ops, const struct attention *a)
{
    return ops->attention_can_pack && ops->attention_can_pack(a);
}

enum status attention_forward(const struct ops *ops, const struct attention *a,
                              const struct attention_fwd *io, struct queue *queue)
{
    TRY(check(ops, a));
    OP_RUN(attention_forward);
}

enum status attention_backward(const struct ops *ops, const struct attention *a,
                               const struct attention_bwd *io, struct queue *queue)
{
    TRY(check(ops, a));
    OP_RUN(attention_backward);
}
