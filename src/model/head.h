/* head.h -- last norm, output projection and cross entropy, forward and backward together.
 *
 * Memory   Logits exist for a chunk of tokens only: about 128 MiB, but at least 1024 tokens or
 *          the backend's logit_rows (ops.h); with fewer, the GEMMs would be bound by rereading the
 *          head's weights and rewriting their gradient. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

struct head_io {
    const void *x_SD; /* output of the last block */
    bool backward;
    void *dx_SD; /* with `backward`: the gradient of x; replaced */
};
/* Fills b's loss and best; with `backward` also accumulates the gradients of the norm and the head.
 * Their units are open. */
enum status head_loss(const struct model *m, const struct microbatch *b, struct head_io io,
                      struct arena *step);

/* Divides normalized tokens, or their gradients, in place by logits_scaling, and so the logits. */
enum status head_scale(const struct model *m, void *y_ND, size_t N);
/* The weights of the output projection: the embedding's if tied. */
enum param_id head_param(const struct model *m);
