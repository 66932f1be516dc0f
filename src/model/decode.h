/* decode.h -- generation with a KV cache, and filling in masked tokens.
 *
 * Axes     B rows, T new tokens of each, S keys and values in the cache, L G K V as in model.h.
 * Memory   Ids and logits are in the host's memory; the cache is the caller's.
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
/* SHAPE: a size below 1, more than KV_CACHE_ROWS rows, or capacity above max_tokens. */
enum status decode_init_cache(struct kv_cache *c, const struct model *m, int B, int capacity,
                              struct arena *run);

struct decode_io {
    const int32_t *ids_RT; /* appended to R rows of the cache */
    int T;                 /* a chunk of the prompt (prefill), then 1 */
    float *logits_RV;      /* of the last position of each */
    const int *rows_R;     /* which ones; NULL: all */
    int R;                 /* with rows_R */
};
/* Appends T tokens to each of these rows and computes the logits of the next.  Causal.
 * SHAPE: they do not fit in the cache; a row that it does not have. */
enum status decode_next(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                        struct arena *step);

struct decode_prompt {
    const int32_t *ids_N; /* appended to one row of the cache */
    size_t N;
    int row, chunk;  /* tokens per forward pass, at most */
    float *logits_V; /* of the last position; left as they are if N is 0 */
};
/* Chunked prefill: decode_next of a prompt in chunks, so that the memory for activations does not
 * grow with its length.  Errors: as decode_next. */
enum status decode_prefill(const struct model *m, struct kv_cache *c, const struct decode_prompt *p,
                           struct arena *step);

/* Sizes `step`, a sizing arena, for decode_next of R rows with T tokens each at the cache's end, or
 * of one row with 1 to T tokens, as decode_prefill needs for chunks of T.  Memory does not grow
 * evenly with T: kernels choose an algorithm by it, and a GPU splits the keys of fewer tokens into
 * more parts. */
enum status decode_size_rows(const struct model *m, struct kv_cache *c, int T, int R,
                             struct arena *step);
enum status decode_size_chunks(const struct model *m, struct kv_cache *c, int T,
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
