/* preflight.h -- everything about a run that can be checked before it starts, on any machine. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "parallel/mesh.h"
#include "tokenizer/tokenizer.h"

struct preflight {
    struct mesh mesh; /* rank 0's */
    struct model_shape shape;
    struct tokenizer *tokenizer; /* owned; may be NULL */
};

/* Checks that the configuration is consistent and fits `num_ranks`, and opens tokenizer, model
 * shape and data.  Allocates no model.  Release `p` even after a failure,
 * which leaves mesh and shape valid. */
enum status preflight(struct preflight *p, const struct config *c, int num_ranks);
void preflight_release(struct preflight *p);
