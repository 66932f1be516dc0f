/* head.h -- last norm, head and cross entropy, forward and backward at once; of the model room.
 *
 * Memory   Logits exist for a chunk of rows only: about 128 MiB, but no fewer than 1024 rows, below
 *          which the product would be slowed by reading the head's weights again and again. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* Fills b's loss and best from the last block's output; with dx (not NULL, or `backward` while
 * measuring) also its gradient, and adds the head's and the norm's. */
enum status head_run(const struct model *m, const struct micro_batch *b, const void *x_SD,
                     bool backward, void *dx_SD, struct arena *step);

/* The head's weights: the embedding's where tied. */
enum param_id head_param(const struct model *m);
