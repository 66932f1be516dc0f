/* model.h -- a Llama on one device, or some pipeline stages of one: its weights, sizes and tables.
 *
 * Axes     B rows, T tokens, N = B*T, S = tokens whose residual stream is local (N, or with
 *          sequence parallelism this rank's part of it); D, H, G, K, F, V as in docs/notation.md.
 * Memory   Weights, gradients and the step arena are the caller's.  A sizing pass over a sizing
 *          queue and an arena without memory finds how much a microbatch needs.
 * Ranks    None: where a tensor leaves the device the model crosses a boundary of its parallel
 *          plan (ops/boundary.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "model/layout.h"
#include "model/recompute.h"
#include "ops/boundary.h"
#include "ops/ops.h"
#include "tensor/queue.h"

struct activation_offload;
struct float8_state;
struct float8_weights;

/* An open unit's weights and gradients. */
struct unit_buffers {
    const void *weights; /* the model's dtype */
    float *gradients;
    bool overwrite; /* the gradients are uninitialized: overwrite them, do not accumulate */
    struct float8_weights *float8; /* FP8 copies of the weights (float8.h); NULL: not kept */
};
/* USE_FINAL: with gradients, to which nothing is added any more in this step. */
enum unit_use { USE_WEIGHTS = 1, USE_GRADIENTS = 2, USE_FINAL = 4 };

/* Provides the units that the model opens, such as FSDP.  The model opens a stage's units in order
 * in forward, and in reverse order, with gradients, in backward. */
struct unit_provider {
    /* Fills the buffers that `use` names. */
    enum status (*open)(struct unit_provider *p, int unit, unsigned use,
                        struct unit_buffers *buffers);
    /* The unit is not used again in this pass; with USE_GRADIENTS its gradients are complete. */
    enum status (*close)(struct unit_provider *p, int unit, unsigned use);
};

/* The caller sets every field that is not marked `model_init`, before or after calling it. */
struct model {
    struct model_shape shape;         /* of all stages; shape, layout, max_tokens: model_init */
    struct layout layout;             /* of this rank's stages */
    int max_tokens;                   /* of a row: rows of the RoPE tables */
    const struct ops *ops;            /* borrowed */
    const struct parallel_plan *plan; /* borrowed */
    struct queue *queue; /* borrowed; set before model_init if `run` is device memory */
    enum dtype dtype;    /* of weights and activations */
    enum recompute recompute;
    int recompute_every;         /* RECOMPUTE_FULL: only every Nth block, others save all; 0 as 1 */
    const void *weights;         /* flat, dtype; borrowed */
    float *gradients;            /* flat, f32; borrowed; NULL: forward only */
    struct float8_state *float8; /* of the whole model; borrowed; NULL: no FP8 */
    struct activation_offload *offload; /* borrowed; NULL: activations stay on the device */
    struct unit_provider *units;        /* borrowed; NULL: units are in the two flat buffers */
    struct unit_buffers *unit_buffers; /* of each unit, valid while it is open; owned; model_init */
    float *rope_cos, *rope_sin;        /* [max_tokens, J], from the run arena; model_init */
};

/* Checks the shape, builds the layout and computes RoPE tables for max_tokens positions, which are
 * allocated from `run`.  CONFIG: an invalid shape.  SHAPE: max_tokens below 1. */
enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens,
                       int num_shards, struct arena *run);
/* The same for some stages of the model. */
enum status model_init_stages(struct model *m, const struct model_shape *shape, int max_tokens,
                              const struct model_part *part, struct arena *run);
void model_release(struct model *m);

/* A microbatch: B rows of T local tokens each; start and end are positions in whole rows.
 * The arrays are the caller's, who has checked that ids are in [0, V) and labels in [0, V) or
 * LABEL_IGNORED; start/end NULL: a row is one document.  In a sizing pass arrays may be NULL, and
 * only whether start and best are NULL may matter. */
struct microbatch {
    int B, T;
    const int32_t *ids_BT, *labels_BT, *start_BT, *end_BT;
    bool causal;
    bool last;   /* of the step: no gradient is accumulated after it */
    float scale; /* of the gradient: 1 / valid tokens of the global batch, or as loss_norm says */
    const float *scale_1; /* in device memory, replaces `scale`; or NULL */
    float z_loss; /* coefficient of the z-loss (ops/cross_entropy.h), part of the gradient only */
    const float *weight_BT; /* of each token's loss; NULL: 1 */
    float *loss_BT;         /* loss of each token, 0 where ignored */
    int32_t *best_BT;       /* argmax of the logits at each position that has a label, or NULL */
    /* The head computes the first head_tokens (head_count_tokens) of order_BT, which lists tokens
     * with a label before those without; inverse_order_BT is its inverse.  head_tokens 0: all
     * tokens. */
    int head_tokens;
    const int32_t *order_BT, *inverse_order_BT;
};

/* Stands for start and end in a sizing pass of a run with a document mask; never read. */
static const int32_t microbatch_bounds[1];

/* Model FLOPs of one token, forward and backward, as torchtitan counts them for MFU:
 * 6 (parameters - embedding) + 12 L H K T; with a sliding window, min(T, window) in place of T.  A
 * tied embedding is also the head's matrix and is not subtracted.  The head counts for every token,
 * although it skips some of those without a label (head.h). */
double model_flops_per_token(const struct model_shape *s, int T);
/* As Megatron-LM counts them: without the norms' weights, and with only the half of the attention
 * matrix that a causal row needs. */
double model_causal_flops_per_token(const struct model_shape *s, int T);
