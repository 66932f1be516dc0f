/* block.h -- one transformer block, forward and backward, side by side; of the model room.
 *
 * Axes     N = B*T tokens, S those of them whose residual stream is here (all, where the plan does
 *          not cut it), D width, H G K heads, Q = H*K, P = G*K, C = Q + 2P, F feed-forward.
 * Memory   A block's activations are kept for its backward or redone by it.  A field that is not
 *          kept lies in buffers all blocks share. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/float8.h"
#include "model/model.h"

/* In order of use: C type, name, elements, dtype, and the mildest recompute that does not keep it;
 * RECOMPUTE_COUNT: all keep it. */
#define ACTIVATION_LIST(X)                                                                         \
    X(void, norm1_ND, N *D, m->dtype, RECOMPUTE_SELECTIVE)                                         \
    X(float, rstd1_S, S, F32, RECOMPUTE_FULL)                                                      \
    X(void, qkv_NC, N *(Q + 2 * P), m->dtype, RECOMPUTE_FULL)                                      \
    X(void, attended_NQ, N *Q, m->dtype, RECOMPUTE_FULL)                                           \
    X(float, lse_BHT, N *H, F32, RECOMPUTE_FULL)                                                   \
    X(void, middle_SD, S *D, m->dtype, RECOMPUTE_FULL)                                             \
    X(void, norm2_ND, N *D, m->dtype, RECOMPUTE_SELECTIVE)                                         \
    X(float, rstd2_S, S, F32, RECOMPUTE_FULL)                                                      \
    X(void, gate_up_N2F, N * 2 * F, m->dtype, RECOMPUTE_FULL)                                      \
    X(void, hidden_NF, N *F, m->dtype, RECOMPUTE_SELECTIVE)                                        \
    X(struct float8_scale, input_scales, m->float8 ? 2 * PRODUCTS : 0, F32, RECOMPUTE_COUNT)

struct activations {
    void *x_SD;    /* the block's input, always kept */
    void *wide_ND; /* where the plan cuts matrices: all rows, for what crosses; not kept */
#define X(type, name, elements, dtype, level) type *name;
    ACTIVATION_LIST(X)
#undef X
    enum recompute recompute; /* what backward has to redo */
};

/* base + elements of dtype; NULL stays NULL, as while measuring. */
static inline void *element(const void *base, size_t elements, enum dtype dtype)
{
    return base ? (unsigned char *)(uintptr_t)base + elements * dtype_bytes(dtype) : NULL;
}
/* Before and after the use of the unit that a tensor is in; weight and gradient are of open units.
 */
enum status model_open(const struct model *m, enum param_id id, int layer, unsigned use);
enum status model_close(const struct model *m, enum param_id id, int layer, unsigned use);
const void *model_weight(const struct model *m, enum param_id id, int layer);
float *model_gradient(const struct model *m, enum param_id id, int layer);
/* Whether a product replaces the gradient of a weight instead of adding to it. */
bool model_is_fresh(const struct model *m, enum param_id id, int layer);
/* Zeros as the gradient. */
enum status model_clear(const struct model *m, enum param_id id, int layer);

/* Tokens whose residual stream is here, of N; and where they lie in a buffer of all N. */
size_t stream_rows(const struct model *m, size_t N);
void *stream_part(const struct model *m, void *wide_ND, size_t N);
/* y = x, or y += x, for the rows of the stream. */
enum status stream_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                        bool accumulate);
/* A buffer of all rows for crossings, or NULL where none is needed. */
void *model_wide(const struct model *m, size_t N, struct arena *step);

/* plan->cross of a dense activation of all rows. */
enum status model_cross(const struct model *m, enum boundary at, enum direction way, void *x,
                        size_t rows, int columns);

/* The norms' results go to products as they are, and cross nothing on their way: private (ops.h).
 */
static inline bool norm_is_private(const struct model *m) { return m->plan->parts == 1; }

/* Takes what `recompute` keeps from `step`; the rest is where `shared` has it. */
void activations_take(const struct model *m, size_t N, enum recompute recompute,
                      const struct activations *shared, struct activations *a, struct arena *step);
/* The complement: what `recompute` does not keep; the rest is NULL. */
void activations_share(const struct model *m, size_t N, enum recompute recompute,
                       struct activations *shared, struct arena *step);

/* x += attended w^T */
enum status block_join(const struct model *m, size_t N, int layer, const struct activations *a,
                       void *x_SD);
/* out = block(a->x); `out` may not be a->x, save where in_place: then middle and out are x. */
enum status block_forward(const struct model *m, const struct micro_batch *b, int layer,
                          const struct activations *a, bool in_place, void *out_SD);
/* The second half: x += mlp(norm(x)). */
enum status block_mlp(const struct model *m, int N, int layer, const struct activations *a,
                      void *x_SD);
/* dx: gradient of the output, replaced by that of the input.  Uses up `a`. */
enum status block_backward(const struct model *m, const struct micro_batch *b, int layer,
                           const struct activations *a, void *dx_SD, struct arena *step);
