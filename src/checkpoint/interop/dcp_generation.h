/* dcp_generation.h -- the generations of torchtitan, which name and store the same state
 * differently in a torch.distributed.checkpoint directory.
 *
 * The key lists in tests/checkpoint/data/dcp-generations name the commits that they come from.
 * Reading needs no generation: dcp.h detects all of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

enum dcp_generation { DCP_FRONTIER, DCP_V0_1, DCP_V0_2, DCP_NEW, DCP_GENERATIONS };
#define DCP_GENERATION_WORDS "frontier|v0.1|v0.2|new" /* their names, in this order */

/* What an entry of train_state holds.  torch loads an entry only if it was saved as the kind of
 * object that the program has: a tensor or a Python object. */
enum dcp_train_value {
    DCP_STEP_INT32,  /* the step, a 0-d tensor */
    DCP_STEP,        /* the step, an int */
    DCP_TOKENS,      /* tokens seen, an int */
    DCP_EMPTY_LIST,  /* an io.BytesIO with torch.save of an empty list */
    DCP_TRAIN_VALUES /* ends a list */
};

struct dcp_generation_spec {
    const char *name; /* of --generation */
    /* Whether weights are nested in "model" ("model.norm.weight"): in a checkpoint of only the
     * model, and in a run's. */
    bool nests_model, nests_run_model;
    bool has_newest_names;      /* lm_head, qkv_linear: see tensor_name.h */
    bool has_qk_norm;           /* trains models with QK norm: Qwen3 */
    bool has_rope_table;        /* a run's checkpoint holds the buffer freqs_cis */
    bool ties;                  /* the head can be tied to the embedding, and then has no moments */
    bool has_empty_loader;      /* the data loader accepts an empty position */
    const char *loader_size;    /* the key of its number of data-parallel ranks; NULL: none */
    const char *without_loader; /* for users: how to load a run without its data position */
    struct {
        const char *name;
        enum dcp_train_value value;
    } train_state[5];
};

extern const struct dcp_generation_spec dcp_generations[DCP_GENERATIONS];

/* The generation that trains a run with this model.name: frontier for "frontier", which a file in
 * the older fork's keys implies; else v0.2. */
enum dcp_generation dcp_generation_of_model(const char *model_name);
