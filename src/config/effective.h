/* effective.h -- the values that a configuration's options stand for: dim = 0 is the flavor's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

/* A copy, which borrows everything, with the sizes of [model] that the flavor or other sizes
 * decide.  Other options, and all of a model that does not exist, stay as they are.  vocab_size
 * stays 0 where the tokenizer decides it. */
void effective_fill(struct config *copy, const struct config *c);

/* Where the effective value of "section.key" comes from: what config_key_origin says, or for a size
 * that nobody set `flavor "8B"`, `derived from dim` and the like, in `buffer`. */
const char *effective_origin(const struct config *c, const char *key, char *buffer, size_t size);
