/* embed.h -- the embedding, forward and backward. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* x: the residual stream of the batch's ids.  gathered: as residual_alloc_gathered returns it. */
enum status embed_forward(const struct model *m, const struct microbatch *b, void *gathered_ND,
                          void *x_SD);

struct embed_gradients {
    void *gathered_ND, *dx_SD;
    unsigned use; /* to open and close the unit with */
    bool is_open; /* tied, in the same stage: the head has opened it and begun its gradient */
};
/* Accumulates the embedding's gradient from that of the stream, and closes the unit. */
enum status embed_backward(const struct model *m, const struct microbatch *b,
                           struct embed_gradients d);
