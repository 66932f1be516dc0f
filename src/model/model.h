/* model.h -- a Llama on one device, or some stages of it: forward, backward, loss, decoding.
 *
 * Axes     B rows, T tokens, N = B*T, S those of them whose residual stream is here; D, H, G, K, F,
 *          V as in params.h.
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

struct float8_state;

/* Where a unit's weights and gradients lie while the model computes with it. */
struct unit_place {
    const void *weights; /* the model's dtype */
    float *gradients;
    bool fresh; /* opened with gradients: what lies there is none, and is to be replaced */
};
/* USE_LAST: with gradients, to which nothing will be added any more in this step. */
enum unit_use { USE_WEIGHTS = 1, USE_GRADIENTS = 2, USE_LAST = 4 };

/* Has units at hand for the model, which opens them in the order of its passes: forward those of a
 * stage, backward (with gradients) in reverse. */
struct units {
    /* Fills what of `place` is to be used.  Gradients are added to what lies there, unless that is
     * fresh. */
    enum status (*open)(struct units *u, int unit, unsigned use, struct unit_place *place);
    /* The unit is not used again in this pass; with gradients: they are whole. */
    enum status (*close)(struct units *u, int unit, unsigned use);
};

/* What is not said to be set by model_init is set by the caller, before or after it. */
struct model {
    struct model_shape shape; /* of all stages; shape, layout, max_tokens: model_init */
    struct layout layout;     /* of what is here */
    int max_tokens;           /* of a row; rows of the rope tables */
    const struct ops *ops;    /* borrowed */
    const struct plan *plan;  /* borrowed */
    struct queue *on;         /* borrowed; set before model_init where `run` is a device's */
    enum dtype dtype;         /* of weights and activations */
    enum recompute recompute;
    int recompute_every; /* RECOMPUTE_FULL: only every Nth block, others keep all; 0 as 1 */
    const void *weights; /* flat, dtype; borrowed */
    float *gradients;    /* flat, f32; borrowed; NULL: forward only */
    struct float8_state
        *float8;               /* of the whole model; borrowed; NULL: no product is of eight bits */
    struct units *units;       /* borrowed; NULL: they lie in the two flat buffers */
    struct unit_place *places; /* owned; of the units that are open; model_init */
    float *rope_cos, *rope_sin; /* [max_tokens, K/2], from the run arena; model_init */
};

/* Shape checked, layout built with units for so many parts, rope tables for max_tokens positions
 * taken from `run` (filled unless `run` is measuring).  CONFIG: the shape; SHAPE: max_tokens below
 * 1. */
enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens, int parts,
                       struct arena *run);
/* The same of some stages of the model. */
enum status model_init_stages(struct model *m, const struct model_shape *shape,
                              const struct stage *stages, int num_stages, int max_tokens, int parts,
                              struct arena *run);
void model_release(struct model *m);

/* One micro-batch: T tokens of a row are here; start and end are places in whole rows.  Arrays are
 * the caller's, who has checked that ids are in [0, V) and labels in [0, V) or LABEL_IGNORED;
 * start/end NULL: a row is one document.  All arrays may be NULL over a measuring queue, where only
 * whether start and best are NULL may matter. */
struct micro_batch {
    int B, T;
    const int32_t *ids_BT, *labels_BT, *start_BT, *end_BT;
    bool causal;
    bool last;        /* of the step: no gradient is added to after it */
    float scale;      /* of the gradient: 1 / valid labels of the global batch (or as asked) */
    float *loss_BT;   /* loss of each token, 0 where ignored */
    int32_t *best_BT; /* likeliest token at each place, or NULL */
};

/* Some bounds, for a measuring queue: they say that there will be documents, and are not read. */
static const int32_t micro_batch_bounds[1];

/* Forward only: fills loss and best.  SHAPE: B or T below 1, or T above max_tokens. */
enum status model_evaluate(const struct model *m, const struct micro_batch *b, struct arena *step);
/* Forward and backward: adds the gradients of scale * sum(loss) to m->gradients.  The bits do not
 * depend on m->recompute. */
enum status model_train(const struct model *m, const struct micro_batch *b, struct arena *step);

/* Keys and values of what was decoded so far. */
struct kv_cache {
    int B, capacity, length; /* tokens a row */
    void *k_LBSGK, *v_LBSGK;
};
/* SHAPE: a size below 1 or capacity above max_tokens. */
enum status kv_cache_init(struct kv_cache *c, const struct model *m, int B, int capacity,
                          struct arena *run);
/* Appends T tokens to each of c->B rows; logits of the last position of each row, in f32; ids and
 * logits are in the host's memory.  Causal.
 * SHAPE: they do not fit in the cache. */
enum status model_decode(const struct model *m, struct kv_cache *c, const int32_t *ids_BT, int T,
                         float *logits_BV, struct arena *step);
/* Logits of P places of a row of T tokens, all of which see each other, as above.  The cache, empty
 * and of one row, is working memory, and is empty afterwards.  SHAPE: it does not hold them; no
 * such place. */
enum status model_fill(const struct model *m, const struct kv_cache *c, const int32_t *ids_T, int T,
                       const int32_t *places_P, int P, float *logits_PV, struct arena *step);

/* Model FLOPs of one token, forward and backward, as torchtitan counts them for MFU:
 * 6 (parameters - embedding) + 12 L H K T.  A tied embedding is multiplied with as the head and is
 * not subtracted. */
double model_flops_per_token(const struct model_shape *s, int T);
/* As Megatron-LM counts them: without the norms' weights, and of attention's products the half that
 * a causal row needs. */
double model_causal_flops_per_token(const struct model_shape *s, int T);
