/* decode.h -- generation with a KV cache, and filling in masked tokens.
 *
 * Axes     B rows of the cache, R of them with T new tokens each (T may differ), S keys and values
 *          in the cache, L G K V as in model.h.
 * Memory   Ids and logits are in the host's memory; the cache is the caller's.
 * Order    A row's logits do not depend on the other rows, up to the rounding of GEMMs and of
 *          attention with other numbers of tokens.
 * Ranks    Collective over the tensor-parallel group. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

enum { KV_CACHE_ROWS = 64 };

/* Keys and values of the tokens so far. */
struct kv_cache {
    int B, capacity;           /* rows, and tokens of a row, at most */
    int length[KV_CACHE_ROWS]; /* tokens of each row */
    void *k_LBSGK, *v_LBSGK;
};
/* SHAPE: a size below 1, more than KV_CACHE_ROWS rows, capacity above max_tokens, or more than
 * INT_MAX tokens in all. */
enum status decode_init_cache(struct kv_cache *c, const struct model *m, int B, int capacity,
                              struct arena *run);

/* New tokens of a row. */
struct decode_row {
    int index; /* in the cache */
    int T;
    const int32_t *ids_T;
};
struct decode_io {
    const struct decode_row *rows_R; /* different ones */
    int R;
    float *logits_RV; /* of the last new token of each */
};
/* One forward pass: appends its tokens to each of these rows and computes the logits of the next.
 * GEMMs, norms and RoPE process the tokens of all rows together.  Causal.
 * SHAPE: tokens that do not fit in the cache; no token; a row that the cache does not have, or one
 * twice. */
enum status decode_next(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                        struct arena *step);
/* Chunked prefill: the same in passes of `chunk` tokens of all rows together, the last of fewer, so
 * that the memory for activations does not grow with the length of prompts and short ones share a
 * pass.  Without rows it does nothing.  Errors: as decode_next, before anything is appended. */
enum status decode_prefill(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                           int chunk, struct arena *step);

/* Sizes `step`, a sizing arena, for decode_next of at most `tokens` tokens in all, and of one token
 * in each of any number of rows.  Memory does not grow evenly with the number of tokens: kernels
 * choose an algorithm by it, and a GPU splits the keys of fewer tokens into more parts.
 * SHAPE: more tokens than the cache can hold. */
enum status decode_size(const struct model *m, struct kv_cache *c, int tokens, struct arena *step);

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
