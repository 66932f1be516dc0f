/* kv_append.h -- stores the keys and values of new tokens in a KV cache, wherever their sequences
 * are in it.
 *
 * Axes     N tokens, S slots of the cache, P elements of a token's keys, and of its values.
 * Memory   slots_N, in device memory, has the slot of each token: different ones, checked by the
 *          caller. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdint.h>

struct kv_append {
    int N, P;
    enum dtype dtype;
};
struct kv_append_io {
    const void *k_NP, *v_NP;
    const int32_t *slots_N;
    void *k_SP, *v_SP;
};

/* k[slots[n]] = new k[n], and v likewise.  SHAPE: a size below 1. */
enum status kv_append(const struct ops *, const struct kv_append *, const struct kv_append_io *,
                      struct queue *);
