/* microbatch.h -- the rows of a batch that go through the model at once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/batch.h"
#include "model/model.h"

/* The rows of the i-th of `count` microbatches; documents: with their bounds.  The caller sets
 * mask, scale and outputs.  In a sizing pass, where a batch has no arrays, neither has the
 * microbatch. */
struct microbatch microbatch_from_batch(const struct batch *b, int i, int count, bool documents);
