/* decode.h -- generation with a KV cache, and filling in masked tokens.
 *
 * Axes     B rows, T new tokens of each, S keys and values in the cache, L G K V as in model.h.
 * Memory   Ids and logits are in the host's memory; the cache is the caller's.
 * Ranks    Collective over the tensor-parallel group. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* Keys and values of the tokens so far. */
struct kv_cache {
    int B, capacity, length; /* tokens of a row */
    void *k_LBSGK, *v_LBSGK;
};
/* SHAPE: a size below 1, or capacity above max_tokens. */
enum status decode_init_cache(struct kv_cache *c, const struct model *m, int B, int capacity,
                              struct arena *run);

struct decode_io {
    const int32_t *ids_BT; /* appended to each of the cache's rows */
    int T;                 /* the whole prompt (prefill), then 1 */
    float *logits_BV;      /* of the last position of each row */
};
/* Appends T tokens to each row and computes the logits of the next.  Causal.
 * SHAPE: they do not fit in the cache. */
enum status decode_next(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                        struct arena *step);

struct decode_masked_io {
    const int32_t *ids_T; /* one row */
    int T;
    const int32_t *positions_P; /* of the masked tokens */
    int P;
    float *logits_PV;
};
/* Logits of P positions of a row whose tokens all attend to each other.  The cache, for one row and
 * empty, is working memory and stays empty.
 * SHAPE: the row does not fit in it; a position outside the row. */
enum status decode_masked(const struct model *m, const struct kv_cache *c,
                          const struct decode_masked_io *io, struct arena *step);
