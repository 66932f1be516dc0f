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
    bool data_checked;           /* all data was opened */
    bool *has_source;            /* of the training data: those that were opened; owned */
};

/* The number of ranks to check: `requested`, or if that is -1 the smallest with the degrees of
 * [parallelism].  USAGE: not between 1 and 2^24. */
enum status preflight_ranks(const struct config *c, int64_t requested, int *num_ranks);

/* Checks that the configuration is consistent and fits `num_ranks`, and opens tokenizer, model
 * shape and data.  Allocates no model.  Data on the Hub is not downloaded: if the cache does not
 * have it, or the Hub cannot be reached, a log line says so.  Release `p` even after a failure,
 * which leaves mesh and shape valid. */
enum status preflight(struct preflight *p, const struct config *c, int num_ranks);
void preflight_release(struct preflight *p);
