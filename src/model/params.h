/* params.h -- every weight of the model, from one list (llama.params).
 *
 * Axes     V vocabulary, D width of the residual stream, Q = H*K query width, P = G*K key/value
 *          width, F width of the feed-forward layer, K size of a head. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How a weight is initialized; init_weights.h has the formulas. */
enum param_init {
    PARAM_INIT_ONES,
    PARAM_INIT_ZEROS,
    PARAM_INIT_EMBED,
    PARAM_INIT_NORMAL,
    PARAM_INIT_DEPTH_SCALED,
    PARAM_INIT_HEAD
};

enum param_id {
#define PARAM(name, ...) PARAM_##name,
#include "model/llama.params"
#undef PARAM
    PARAM_COUNT
};

struct param {
    const char *name; /* torchtitan's and Meta's: "layers.%d.attention.wq.weight" */
    const char *axes; /* "QD": rows, columns */
    char tp;          /* the axis that tensor parallelism slices, 0 for none */
    enum param_init init;
    const char *hf_name; /* in a Hugging Face checkpoint (%d = layer) */
};
extern const struct param params[PARAM_COUNT];

/* A norm's weight or a bias: its gradient accumulates, and it may be excluded from weight decay. */
static inline bool param_is_vector(enum param_id id) { return !params[id].axes[1]; }

/* A set of kinds of weights has bit 1 << id for each. */
_Static_assert(PARAM_COUNT <= 32, "a set of kinds of weights has a bit for each");
static inline uint32_t param_set_of(enum param_id id) { return UINT32_C(1) << id; }
static inline bool param_set_has(uint32_t set, enum param_id id) { return set & param_set_of(id); }
