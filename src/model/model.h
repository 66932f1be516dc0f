/* model.h -- a Llama on one device: forward, backward, loss, decoding.
 *
 * Axes     B rows, T tokens, N = B*T; D, H, G, K, F, V as in params.h.
 * Memory   Weights, gradients and the activation arena are the caller's.  What a micro-batch takes
 *          is found by running it over a measuring queue with a measuring arena.
 * Ranks    None: where a tensor leaves the device the model crosses a boundary of its plan. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "model/params.h"
#include "ops/boundary.h"
#include "ops/ops.h"
#include "tensor/queue.h"

struct model {
    struct model_shape shape;
    struct layout layout;
    const struct ops *ops;   /* borrowed */
    const struct plan *plan; /* borrowed */
    struct queue *on;        /* borrowed */
    enum dtype dtype;        /* of weights and activations */
    enum recompute recompute;
    const void *weights;        /* flat, dtype; borrowed */
    float *gradients;           /* flat, f32; borrowed; NULL: forward only */
    float *rope_cos, *rope_sin; /* [max T, K/2], from the run arena */
};

/* Shape checked, layout built, rope tables for max_tokens positions taken from `run`. */
enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens,
                       struct arena *run);
void model_release(struct model *m);

/* One micro-batch.  Arrays are the caller's; start/end NULL: a row is one document. */
struct micro_batch {
    int B, T;
    const int32_t *ids_BT, *labels_BT, *start_BT, *end_BT;
    bool causal;
    float scale;      /* of the gradient: 1 / valid labels of the global batch (or as asked) */
    float *loss_BT;   /* loss of each token, 0 where ignored */
    int32_t *best_BT; /* likeliest token at each place, or NULL */
};

/* Forward only: fills loss and best. */
enum status model_evaluate(const struct model *m, const struct micro_batch *b, struct arena *step);
/* Forward and backward: adds the gradients of scale * sum(loss) to m->gradients. */
enum status model_train(const struct model *m, const struct micro_batch *b, struct arena *step);

/* Keys and values of what was decoded so far. */
struct kv_cache {
    int B, capacity, length; /* tokens a row */
    void *k_LBSGK, *v_LBSGK;
};
enum status kv_cache_init(struct kv_cache *c, const struct model *m, int B, int capacity,
                          struct arena *run);
/* Appends T tokens to each of c->B rows; logits of the last position of each row, in f32. */
enum status model_decode(const struct model *m, struct kv_cache *c, const int32_t *ids_BT, int T,
                         float *logits_BV, struct arena *step);

/* Model FLOPs of one token, forward and backward, as torchtitan counts them for MFU:
 * 6 (parameters - embedding) + 12 L H K T. */
double model_flops_per_token(const struct model_shape *s, int T);
