/* fill.h -- a masked model fills in the masks of a text; of `generate`. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded.h"
#include "model/decode.h"
#include "model/sampling.h"

/* Prints the text with each <mask> (or objective.mask_token) of it filled in, one after the other,
 * the place the model is surest of first: after each the others are thought over again
 * (mask-predict, Ghazvininejad et al. 2019, with one token a round).  USAGE: no mask; CONFIG: a
 * causal model.  Collective. */
enum status fill_print(struct loaded *l, const char *text, const struct sampling *s, bool json);
