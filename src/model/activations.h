/* activations.h -- the activations of a block: which are saved for backward, which are recomputed.
 *
 * Axes     N = B*T tokens, S those whose residual stream is local, D width, H G K heads,
 *          Q = H*K, P = G*K, C = Q + 2P, F feed-forward, R = H + G.
 * QK norm  qkv_NC then keeps what was projected, and attention reads its values; normalized and
 *          rotated queries and keys are in the same columns of qk_NC, which holds no values.
 * post_norm  norm1_ND and norm2_ND then hold the stream as it is; attn_sum_SD and mlp_sum_SD what
 *          the norms behind attention and feed-forward layer normalize, rstd1_S and rstd2_S theirs.
 * FP8      On a device with native FP8, norm1, norm2 and hidden hold FP8 values in both storage
 *          orders (matmul.h).
 * Memory   Activations that activation checkpointing does not save are in buffers that all blocks
 *          share. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"

/* In order of use: C type, name, elements, dtype, and the least recomputation that does not save it
 * (RECOMPUTE_COUNT: always saved). */
#define ACTIVATION_LIST(X)                                                                         \
    X(void, norm1_ND, N *D, m->dtype, RECOMPUTE_SELECTIVE)                                         \
    X(float, rstd1_S, S, F32, RECOMPUTE_FULL)                                                      \
    X(void, qkv_NC, N *(Q + 2 * P), m->dtype, RECOMPUTE_FULL)                                      \
    X(void, qk_NC, m->shape.qk_norm ? N *(Q + 2 * P) : 0, m->dtype, RECOMPUTE_SELECTIVE)           \
    X(float, qk_rstd_NR, m->shape.qk_norm ? N *(H + G) : 0, F32, RECOMPUTE_FULL)                   \
    X(void, attended_NQ, N *Q, m->dtype, RECOMPUTE_FULL)                                           \
    X(float, lse_BHT, N *H, F32, RECOMPUTE_FULL)                                                   \
    X(void, attn_sum_SD, m->shape.post_norm ? S *D : 0, m->dtype, RECOMPUTE_FULL)                  \
    X(void, middle_SD, S *D, m->dtype, RECOMPUTE_FULL)                                             \
    X(void, norm2_ND, N *D, m->dtype, RECOMPUTE_SELECTIVE)                                         \
    X(float, rstd2_S, S, F32, RECOMPUTE_FULL)                                                      \
    X(void, gate_up_N2F, N * 2 * F, m->dtype, RECOMPUTE_FULL)                                      \
    X(void, hidden_NF, N *F, m->dtype, RECOMPUTE_SELECTIVE)                                        \
    X(void, mlp_sum_SD, m->shape.post_norm ? S *D : 0, m->dtype, RECOMPUTE_FULL)                   \
    X(struct float8_scale, input_scales, m->float8 ? 2 * MATMUL_COUNT : 0, F32, RECOMPUTE_COUNT)

/* What is offloaded of a block (activation_offload.h). */
enum offload_part { OFFLOAD_INPUT, OFFLOAD_SAVED, OFFLOAD_PARTS };
struct offloaded {
    void *host; /* pinned memory */
    size_t bytes;
};

struct activations {
    void *x_SD;        /* the block's input, always saved */
    void *gathered_ND; /* all tokens, as residual_alloc_gathered says; never saved */
#define X(type, name, elements, dtype, level) type *name;
    ACTIVATION_LIST(X)
#undef X
    enum recompute recompute;                  /* what backward recomputes */
    struct offloaded offloaded[OFFLOAD_PARTS]; /* only with activation_checkpoint.offload */
    bool has_scales; /* input_scales are those of the forward pass, which is being recomputed */
};

/* Allocates from `step` what a->recompute saves; the other buffers of `a` stay the shared ones. */
void activations_alloc_saved(const struct model *m, size_t N, struct activations *a,
                             struct arena *step);
/* Allocates the complement, what `recompute` does not save; the other buffers are NULL. */
void activations_alloc_shared(const struct model *m, size_t N, enum recompute recompute,
                              struct activations *shared, struct arena *step);
