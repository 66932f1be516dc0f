/* batch.h -- batches of rows over the ranks that compute on the same rows.
 *
 * Only the first rank of such peers reads a batch and broadcasts it.  With context parallelism each
 * rank then keeps its part of every row's tokens (ops/context.h), the local batch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "data/data.h"
#include "model/model.h"

/* Allocates the arrays of B rows of T tokens. */
void batch_alloc(struct batch *b, int B, int T, struct arena *run);
/* Broadcasts rank 0's batch to all peers.  Collective. */
enum status batch_broadcast(struct batch *b, const struct comm *peers);

/* Allocates the local batch; without context parallelism it shares the arrays of whole rows. */
void batch_alloc_local(const struct batch *whole, const struct comm *contexts, struct batch *local,
                       struct arena *run);
/* Copies this rank's tokens of whole rows.  `valid` and `bytes` stay those of whole rows. */
void batch_copy_local(const struct batch *whole, const struct comm *contexts, bool causal,
                      struct batch *local);

/* The rows of the i-th of `count` microbatches; documents: with their bounds.  The caller sets
 * mask, scale and outputs.  In a sizing pass, where a batch has no arrays, neither has the
 * microbatch. */
struct microbatch batch_microbatch(const struct batch *b, int i, int count, bool documents);
