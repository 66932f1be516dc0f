/* fill_mask.h -- `generate --fill`: a masked language model fills in the masks of a text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded_model.h"
#include "model/decode.h"
#include "model/sampling.h"

/* Prints the text with each <mask> (or objective.mask_token) filled in.  Fills one mask per forward
 * pass, the position with the highest probability first, so that later choices see earlier ones
 * (mask-predict with one token per iteration, Ghazvininejad et al. 2019).  USAGE: no mask, or more
 * tokens than a row; CONFIG: a causal model, or the tokenizer lacks the mask token.  Collective. */
enum status fill_mask_print(struct loaded_model *l, const char *text, const struct sampling *s,
                            bool json);
