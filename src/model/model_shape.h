/* model_shape.h -- the dimensions of a model: a flavor's, overridden by the options of [model]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "model/model_config.h"
#include "ops/rope.h"

struct model_shape {
    int V, D, L, H, G, K, F;
    double rope_theta, norm_eps;
    struct rope_scaling scaling; /* factor 0: unscaled RoPE */
    bool qk_norm;                /* RMSNorm of each head's query and key, as in Qwen3 */
    /* RMSNorm behind attention and feed-forward layer instead of in front; QK norm is then over all
     * heads together: OLMo 2 */
    bool post_norm;
    int window;              /* model.sliding_window */
    bool qkv_bias, out_bias; /* model.attention_bias: qkv is the first, all both */
    bool mlp_bias;
    double partial_rotary_factor; /* RoPE rotates this part of each head, as in Phi-3; 0: all */
    int no_rope_interval;         /* every Nth block has no RoPE (NoPE), as in SmolLM3; 0: none */
    /* Granite's; each 0 if it is 1, attention_multiplier if it is 1/sqrt(K). */
    double embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling;
    bool tied;             /* the head shares the embedding's weights */
    bool depth_init;       /* INIT_torchtitan: std depends on the layer, not on L */
    enum init_scheme init; /* init_weights.h has the formulas */
    double init_std;       /* 0: 0.02 */
    int max_context;       /* config.json's max_position_embeddings */
    int vocab_multiple;    /* a slice's rows of embedding and head; 0 as 1 */
    int slice, num_slices; /* model_shape_slice sets them; num_slices 0: the whole model */
};

/* A tensor-parallel rank's part of the vocabulary: tokens [first, first + tokens).  Embedding and
 * head have `rows` rows, the same number on every rank; those after `tokens` are padding. */
struct vocab_slice {
    int first, tokens, rows;
};
/* The part of slice `slice` of s->num_slices.  The whole model has no padding. */
struct vocab_slice model_shape_vocab(const struct model_shape *s, int slice);

/* Resolves the dimensions: each option that is set, else the flavor's value.  If `vocab_size` is
 * unset, it is the tokenizer's, or without a tokenizer (0) the flavor's.  If `ffn_hidden` is unset,
 * the flavor's formula is applied to `dim`; if `vocab_multiple` is, it is 64, or 16 for V < 4096.
 * CONFIG: unknown family or size (the closest, or all, are named); dimensions that contradict each
 * other. */
enum status model_shape_resolve(struct model_shape *s, const struct model_config *c,
                                int tokenizer_vocab_size);
/* Whether torchtitan trains this flavor with a document mask. */
bool model_shape_masks_documents(const struct model_config *c);
/* The value of model.attention_bias that gives these biases. */
const char *model_shape_biases(const struct model_shape *s);
/* CONFIG: a dimension is out of range or contradicts another. */
enum status model_shape_check(const struct model_shape *s);
/* Shape of one of `num_slices` tensor-parallel slices: fewer heads, a narrower feed-forward layer,
 * a part of the vocabulary (model_shape_vocab; V stays the whole vocabulary).  With more slices
 * than key/value heads, neighbors share one. */
struct model_shape model_shape_slice(const struct model_shape *s, int slice, int num_slices);
/* Sets the multipliers that differ from their defaults. */
void model_shape_set_multipliers(struct model_shape *s, double embedding, double residual,
                                 double attention, double logits);
/* Whether any differs. */
bool model_shape_multiplies(const struct model_shape *s);
/* A multiplier of the shape, or 1. */
static inline double model_shape_multiplier(double m) { return m > 0 ? m : 1; }
/* The factor on q.k before the softmax. */
float model_shape_attention_scale(const struct model_shape *s);
/* Whether only Phi-3 computes this: RoPE of a part of each head, or LongRoPE. */
bool model_shape_is_phi3(const struct model_shape *s);
/* Rotary pairs of a head: coordinates j and j + pairs are rotated together. */
int model_shape_rotary_pairs(const struct model_shape *s);
/* Whether the block rotates queries and keys. */
static inline bool model_shape_has_rope(const struct model_shape *s, int layer)
{
    return !s->no_rope_interval || (layer + 1) % s->no_rope_interval;
}
/* Members of a JSON object: dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_hidden and
 * vocab_size. */
void model_shape_write_json(const struct model_shape *s, struct json_writer *w);
