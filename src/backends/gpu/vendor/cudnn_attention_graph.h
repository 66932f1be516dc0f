/* attention_graph_cudnn.h -- attention, forward and backward, in cuDNN's operations.
 *
 * Axes     B rows of T tokens (documents: as many as there may be, each of T at most), H query
 *          heads, G key/value heads, K head size; as many queries as keys.
 * Memory   q, k, v and their gradients are rows of q_row and kv_row elements a token; out and its
 *          gradient of out_row; lse [B, all_heads, T] of which H are here, or with documents
 *          [token, H], all of it in f32.
 * Order    With `deterministic` dq is a product of stored scores' gradients, T x T of them; else it
 *          is added up by whichever block comes first. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/vendor/cudnn_graph.h"

struct attention_graph {
    int B, T, H, G, K;
    int64_t q_row, kv_row, out_row;
    int all_heads;
    bool causal;
    bool documents; /* rows are of any length, behind each other */
    bool backward, deterministic;
};

/* What the caller has to place. */
enum attention_tensor {
    ATTENTION_NONE,
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_LSE,
    ATTENTION_DOUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_SCALE,  /* float on the host */
    ATTENTION_LOWEST, /* float: the score of a pair that is not seen */
    ATTENTION_ONE,    /* float: 1 */
    ATTENTION_DELTA,  /* working memory, as lse: sum of dout out */
    ATTENTION_DQ_SUM, /* working memory, f32: unless deterministic */
    ATTENTION_DK_ALL, /* working memory of documents, where G < H: of every query head */
    ATTENTION_DV_ALL,
    ATTENTION_LENGTHS,   /* int32 [B]: tokens of each document */
    ATTENTION_Q_BEGIN,   /* int64 [B+1]: where each begins, in elements of q */
    ATTENTION_KV_BEGIN,  /* of k and v */
    ATTENTION_OUT_BEGIN, /* of out */
    ATTENTION_LSE_BEGIN, /* of lse */
    ATTENTION_TENSOR_COUNT
};

/* Bytes of working memory, 0: the graph does not have it.  `tokens`: of all rows. */
size_t attention_graph_bytes(const struct attention_graph *a, enum attention_tensor which,
                             size_t tokens);

void attention_graph_build(const struct attention_graph *a, struct graph *g);
