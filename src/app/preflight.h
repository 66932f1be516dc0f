/* preflight.h -- everything about a run that can be looked at before it, on any machine. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "parallel/mesh.h"

struct preflight {
    struct mesh mesh; /* rank 0's */
    struct model_shape shape;
};

/* The configuration against itself and so many ranks; tokenizer, model and data.  Trains nothing,
 * and allocates nothing of the run's size. */
enum status preflight(struct preflight *p, const struct config *c, int num_ranks);
