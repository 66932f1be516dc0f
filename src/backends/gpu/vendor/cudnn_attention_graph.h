/* cudnn_attention_graph.h -- scaled dot-product attention, forward and backward, as a cuDNN
 * operation graph: the pattern that cuDNN's own front end builds and its engines recognize.
 *
 * Axes     B rows of T queries and S keys (varlen: B sequences of at most T == S each), H query
 *          heads, G key/value heads, K head size.
 * Memory   q, k, v have q_stride and kv_stride elements per token, out and its gradient out_stride,
 *          and the rows of q, of k and v, and of out and its gradient have row_queries, row_keys
 *          and row_out tokens, of which the graph covers T or S.  Gradients of q, k, v have
 *          dq_stride and dkv_stride elements per token, and T or S tokens per row.  lse is f32,
 *          [B, total_heads, T], of which the graph covers H heads; with varlen, [token, H].
 * Order    Deterministic: dq is a matmul of dS, which most engines store (T x T per head).
 *          Otherwise thread blocks add to dq atomically. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/vendor/cudnn_graph.h"

struct cudnn_attention_graph {
    int B, T, S, H, G, K;
    int64_t q_stride, kv_stride, out_stride, dq_stride, dkv_stride;
    int row_queries, row_keys, row_out;
    int total_heads;
    bool causal; /* T == S */
    int window;  /* causal: keys that a query attends to, its own included; 0: all */
    bool varlen; /* ragged: rows are packed sequences of any length */
    bool backward, deterministic;
};

/* Ids of the tensors that the caller binds to memory. */
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
    ATTENTION_SCALE,      /* float in host memory */
    ATTENTION_MASK_VALUE, /* float in host memory: the score of a masked pair */
    ATTENTION_WINDOW,     /* float in host memory: the window */
    ATTENTION_ONE,        /* float in host memory: 1 */
    ATTENTION_DELTA,      /* scratch, laid out as lse: rowsum(dout * out) */
    ATTENTION_DQ_ACCUM,   /* scratch, f32; unless deterministic */
    ATTENTION_DK_FULL,    /* scratch with varlen and GQA: dk of every query head */
    ATTENTION_DV_FULL,
    ATTENTION_LENGTHS,     /* int32 [B]: tokens of each sequence */
    ATTENTION_Q_OFFSETS,   /* int64 [B+1]: ragged offsets into q, in elements */
    ATTENTION_KV_OFFSETS,  /* into k and v */
    ATTENTION_OUT_OFFSETS, /* into out */
    ATTENTION_LSE_OFFSETS, /* into lse */
    ATTENTION_TENSOR_COUNT
};

/* Bytes of scratch for the tensor; 0: the graph does not use it.  `tokens`: of all rows. */
size_t cudnn_attention_graph_scratch(const struct cudnn_attention_graph *a,
                                     enum attention_tensor which, size_t tokens);

/* The engine of a deterministic backward on Blackwell (capability 10.x, given as 100) that needs no
 * memory for dS.  The heuristics of this version of cuDNN propose only one that stores it; cuDNN's
 * front end, too, names this one (override_heuristics_query), and excludes varlen with head sizes
 * that are not a multiple of 16.  False: the heuristics choose. */
bool cudnn_attention_graph_engine(const struct cudnn_attention_graph *a, int capability,
                                  size_t version, struct cudnn_engine *out);

void cudnn_attention_graph_build(const struct cudnn_attention_graph *a, struct cudnn_graph *g);
