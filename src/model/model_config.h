/* model_config.h -- what [model], [activation_checkpoint] and [float8] say, and the shape they come
 * to. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "base/status.h"
#include "ops/rope.h"

struct model_config {
#define OPT OPT_FIELD
#include "model/model.opts"
#undef OPT
};

struct activation_checkpoint_config {
#define OPT OPT_FIELD
#include "model/activation_checkpoint.opts"
#undef OPT
};

struct float8_config {
#define OPT OPT_FIELD
#include "model/float8.opts"
#undef OPT
};

/* What of a block's activations backward finds: all; all but what is cheap to redo; its input. */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_COUNT };

/* How weights start; params.h has the rules. */
enum init { INIT_TORCHTITAN, INIT_NORMAL, INIT_MEGATRON };

/* Dimensions, resolved: a flavor's, overridden by the keys that are set. */
struct model_shape {
    int V, D, L, H, G, K, F;
    double rope_theta, norm_eps;
    struct rope_scaling scaling; /* factor 0: none */
    bool tied;                   /* the head is the embedding */
    bool depth_init;             /* torchtitan's: std 0.02 / sqrt(2 (layer+1)) */
    enum init init;
    double init_std; /* 0: 0.02 */
    int max_context; /* config.json's max_position_embeddings */
};

/* Keys where they are set; else the flavor's.  Where `vocab_size` is not set, the tokenizer's, and
 * with no tokenizer (0) the flavor's.  Where `ffn_hidden` is not set, the flavor's rule is applied
 * to `dim`.  CONFIG: no such flavor (the nearest is named), or dimensions that do not fit together.
 */
enum status model_shape_resolve(struct model_shape *s, const struct model_config *c,
                                int tokenizer_vocab_size);
/* Dimensions fit together.  CONFIG: which do not. */
enum status model_shape_check(const struct model_shape *s);
/* One of `parts` even parts of the heads, the feed-forward layer and the vocabulary; where there
 * are fewer heads of keys and values than parts, several parts have the same one. */
struct model_shape model_shape_cut(const struct model_shape *s, int parts);

/* What [activation_checkpoint] asks for; `every`: with RECOMPUTE_FULL only every Nth block is
 * recomputed and the others keep all.  CONFIG: an option that is neither "op" nor a number. */
enum status recompute_resolve(const struct activation_checkpoint_config *c, enum recompute *kind,
                              int *every);
