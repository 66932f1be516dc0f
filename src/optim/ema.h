/* ema.h -- the exponential moving average (EMA) of the weights, after each update of the optimizer:
 *   ema = ema + (1 - decay) (w - ema)
 * as torch.optim.swa_utils.get_ema_multi_avg_fn computes it.  It starts as the weights.
 *
 * Axes     Flat; this rank's shard, as the weights.  Every element depends on its own weight alone,
 *          so the bits do not depend on the parallel layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optim.h"

/* Whether a run has a moving average. */
bool ema_is_kept(const struct optimizer_config *c);
/* Buffers of a training state: weights, both moments (the second without what Muon updates) and, if
 * the run has one, the average. */
static inline int ema_num_buffers(const struct optimizer_config *c)
{
    return ema_is_kept(c) ? 4 : 3;
}
/* Updates o->ema, if the run has one, from the weights of `o`. */
enum status ema_step(const struct optim *o, const struct ops *ops, struct queue *queue);
/* The same, but sets it to the weights. */
enum status ema_start(const struct optim *o, const struct ops *ops, struct queue *queue);
