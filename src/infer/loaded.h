/* loaded.h -- a trained model opened for eval and generate: weights, tokenizer, machine.
 *
 * Memory   Weights stand in one arena in the computing dtype, and are read into it as such.
 * Ranks    Each of those that were started together holds its part of the model, and computes with
 *          the others.  All functions but loaded_close and loaded_layout are collective. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "machine/machine.h"
#include "model/model.h"
#include "parallel/fsdp.h"
#include "parallel/pipeline.h"
#include "parallel/plan.h"
#include "tokenizer/tokenizer.h"

struct loaded {
    char *folder;         /* the Hugging Face folder the weights came from; owned */
    struct config config; /* of the run that made it, if its config.toml is there; then settings */
    struct tokenizer *tokenizer; /* NULL: the folder has none, as where all data was ids */
    struct machine machine;
    struct model_shape shape; /* of the whole model */
    struct model model;       /* what is here of it */
    struct stage stage;       /* all of it */
    struct group_plan plan;
    struct fsdp fsdp;
    void *weights;     /* this rank's part of every unit */
    struct arena run;  /* weights, rotary tables */
    struct arena step; /* one forward; sized by loaded_arena */
    bool config_is_open;
};

/* The folder with config.json, or torch's files, that `path` means: itself, or the newest
 * checkpoint of a run, ours or torch's.  Rank 0 of `world` looks; NULL: this one alone. */
enum status loaded_folder(const char *path, const struct comm *world, char **folder);
/* The same of a run, or of the folder of its checkpoints, for that step; below 0: the newest.
 * CONFIG: `path` is one model. */
enum status loaded_step(const char *path, int64_t step, const struct comm *world, char **folder);

/* The layout in which a model that was trained in `p` is used on so many ranks.  A pipeline's
 * stages, and ranks that cut rows, become ranks that share out the weights: a pass forward alone
 * gains nothing from them.  Unless it is asked for now, a layout of another number of ranks gives
 * way to one where all share out the weights. */
void loaded_layout(struct parallelism_config *p, bool asked, int ranks);

/* l->machine has been joined, and the rest of *l is 0.  `tokenizer` overrides the folder's own (""
 * none); rows of up to max_tokens positions (0: the configuration's seq_len). */
enum status loaded_open(struct loaded *l, const char *path, const char *tokenizer,
                        const char *const *settings, int num_settings, int max_tokens);
/* `how` the command ended: see machine_close_ranks. */
void loaded_close(struct loaded *l, enum status how);

/* A pipeline of that one stage, for evaluator_alloc. */
struct pipeline loaded_pipeline(const struct loaded *l);

/* Rehearses `forward` over measuring arenas, then gives l->step and the queue's scratch that size.
 */
enum status loaded_arena(struct loaded *l, enum status (*forward)(void *context), void *context);
