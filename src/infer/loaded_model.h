/* loaded_model.h -- a trained model opened for eval and generate: weights, tokenizer, machine.
 *
 * Memory   Weights occupy one arena, in the compute dtype; they are converted while being read.
 * Ranks    Each rank holds its shard of the model and takes part in every forward pass.  The
 *          functions that find or open a model are collective. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "config/config.h"
#include "machine/machine.h"
#include "model/model.h"
#include "parallel/fsdp.h"
#include "parallel/pipeline.h"
#include "parallel/plan.h"
#include "tokenizer/tokenizer.h"

struct loaded_model {
    char *folder;                /* the folder that the weights were read from; owned */
    struct config config;        /* the run's config.toml, if any, with the settings on top; rows
                                    and mask are those of the data stage of its last step.  Without
                                    a config.toml rows are not longer than shape.max_context */
    struct tokenizer *tokenizer; /* NULL: the folder has none (trained on token IDs) */
    struct token_list gaps;      /* IDs between the tokenizer's added tokens that no token has */
    struct machine machine;
    struct model_shape shape; /* of the whole model */
    int64_t context;          /* tokens of the longest rows that it was trained on; 0: unknown */
    const char *context_key;  /* where that number is from; borrowed */
    struct model model;       /* this rank's tensor-parallel shard of it */
    struct stage stage;       /* the only one: all blocks */
    struct group_plan plan;
    struct fsdp fsdp;
    void *weights;     /* this rank's shard of every FSDP unit */
    struct arena run;  /* weights, RoPE tables */
    struct arena step; /* activations of a forward pass; sized by loaded_model_alloc_step */
    bool config_is_open, has_config; /* has_config: the folder has a config.toml */
};

/* The folder of weights that `path` stands for: itself, or the newest checkpoint of a run (ours or
 * torch's).  Collective: rank 0 of `world` looks it up. */
enum status loaded_model_find(const char *path, const struct comm *world, char **folder);
/* The same for a given step of a run or of a folder of checkpoints; step < 0: the newest.
 * CONFIG: `path` is a single model. */
enum status loaded_model_find_step(const char *path, int64_t step, const struct comm *world,
                                   char **folder);

/* Turns the layout `p` that a model was trained in into one for inference on `ranks` ranks:
 * pipeline stages and context-parallel ranks become FSDP shards, as a forward pass alone gains
 * nothing from them.  If the layout does not make `ranks` ranks and was not `requested` on the
 * command line, all ranks become FSDP shards. */
void loaded_model_choose_layout(struct parallelism_config *p, bool requested, int ranks);

/* What to open. */
struct loaded_model_options {
    const char *path, *tokenizer; /* tokenizer overrides the folder's own; "": do not */
    const char *const *settings;  /* section.key=value */
    int num_settings;
    bool ema;       /* the moving average of the weights (optimizer.ema_decay), not the weights */
    int max_tokens; /* positions per row; 0: the configuration's seq_len; below 0: as many as the
                       model supports, if its folder says */
};
/* The caller has joined l->machine; the rest of *l is zero. */
enum status loaded_model_open(struct loaded_model *l, const struct loaded_model_options *o);
/* Ends the process by a pending signal, if it is the only rank: a launcher would report that one of
 * several died. */
void loaded_model_raise_signal(const struct loaded_model *l);
/* `how` the command ended: see machine_close_ranks. */
void loaded_model_close(struct loaded_model *l, enum status how);

/* Warns, on rank 0, of a context of more tokens than the model was trained on. */
void loaded_model_warn_context(const struct loaded_model *l, int64_t tokens);

/* Sets the logits of IDs without a token, between added tokens, to -inf; returns the number of IDs
 * to choose from, as the model's vocabulary may be larger than its tokenizer's. */
int loaded_model_mask_logits(const struct loaded_model *l, float *logits_V);
/* Writes the text of the tokens; U+FFFD for bytes that are not UTF-8, and for NUL. */
enum status loaded_model_write_text(const struct loaded_model *l, const int32_t *ids, size_t count,
                                    const char *key, struct json_writer *w);

/* A pipeline of that one stage, for evaluator_alloc. */
struct pipeline loaded_model_pipeline(const struct loaded_model *l);

/* Runs `forward` once as a sizing pass, then allocates l->step and the queue's scratch. */
enum status loaded_model_alloc_step(struct loaded_model *l, enum status (*forward)(void *context),
                                    void *context);
