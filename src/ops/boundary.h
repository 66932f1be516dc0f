/* boundary.h -- named places where the model hands something over.
 *
 * Model code is written for one device and crosses these places in order.  What happens there --
 * nothing, or a collective -- is the plan's affair; on one rank every crossing is free.  */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tensor/dtype.h"

#include <stddef.h>

enum boundary { EMBED_OUT, ATTN_IN, ATTN_OUT, MLP_IN, MLP_OUT, HEAD_IN, BOUNDARY_COUNT };
enum direction { FORWARD, BACKWARD, DIRECTION_COUNT };

struct queue;

/* A dense activation [rows, columns]. */
struct crossing {
    void *x;
    int rows, columns;
    enum dtype dtype;
};

struct plan {
    /* Replaces x by what the next piece of the model must see.  Collective. */
    enum status (*cross)(const struct plan *, enum boundary, enum direction, struct crossing *x,
                         struct queue *on);
};
