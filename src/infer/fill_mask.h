/* fill_mask.h -- `generate --fill`: a masked or diffusion model fills in the masks of a text; and
 * generation by diffusion, where the masks follow a prompt.
 *
 * Each forward pass fills in the masks in which the model is most confident, so that later choices
 * see earlier ones: mask-predict (Ghazvininejad et al. 2019), or with a diffusion model
 * low-confidence remasking (Nie et al. 2025, LLaDA). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded_model.h"
#include "model/decode.h"
#include "model/sampling.h"

struct unmasking {
    struct sampling sampling;
    int64_t steps; /* forward passes; 0: one for each mask */
    int64_t block; /* masks of a block; blocks are filled in from left to right; 0: one block */
};

/* Prints the text with each <mask> (or objective.mask_token) filled in.  USAGE: no mask, more
 * tokens than a row, or steps that do not fit the masks; CONFIG: a causal model, or the tokenizer
 * lacks the mask token.  Collective. */
enum status fill_mask_print(struct loaded_model *l, const char *text, const struct unmasking *how,
                            bool json);
/* Appends `count` tokens to a prompt, all of which are masks at first.  Errors as above.
 * Collective. */
enum status fill_mask_append(struct loaded_model *l, struct token_list *ids, int64_t count,
                             const struct unmasking *how);
