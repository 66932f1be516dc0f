/* params_json.h -- params.json beside Meta's weights, both ways.
 *
 * It leaves out what the weights say: the vocabulary (-1), the feed-forward width (a rule), whether
 * the head is the embedding; and what Meta's own program has in it: where rotary frequencies are
 * scaled, which ours writes out. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "checkpoint/patches.h"

/* The shape of a model with these tensors, whose rows of q and k need not be in order.  MISSING: it
 * is not there.  DATA, CONFIG: a key is missing or wrong, or does not fit the tensors. */
enum status params_json_read(const char *path, const struct patches *p, struct model_shape *shape);
void params_json_write(const struct model_shape *shape, struct text *json);
