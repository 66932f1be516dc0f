/* loaded.h -- a trained model opened for eval and generate: weights, tokenizer, machine.
 *
 * Memory   Weights stand in one arena in the computing dtype, and are read into it as such. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/machine.h"
#include "config/config.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

struct loaded {
    char *folder;         /* the Hugging Face folder the weights came from; owned */
    struct config config; /* of the run that made it, if its config.toml is there; then settings */
    struct tokenizer *tokenizer;
    struct machine machine;
    struct model model;
    struct arena run;  /* weights, rotary tables */
    struct arena step; /* one forward; sized by loaded_arena */
    bool config_is_open;
};

/* The folder with config.json that `path` means: itself, or the newest checkpoint of a run. */
enum status loaded_folder(const char *path, char **folder);

/* `tokenizer` overrides the folder's own ("" none); rows of up to max_tokens positions (0: the
 * configuration's seq_len). */
enum status loaded_open(struct loaded *l, const char *path, const char *tokenizer,
                        const char *const *settings, int num_settings, int max_tokens);
void loaded_close(struct loaded *l);

/* Rehearses `forward` over measuring arenas, then gives l->step and the queue's scratch that size.
 */
enum status loaded_arena(struct loaded *l, enum status (*forward)(void *context), void *context);
