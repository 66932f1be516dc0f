/* boundary.h -- named places where the model hands something over.
 *
 * Model code is written for one device and crosses these places in order.  What happens there --
 * nothing, or a collective -- is the plan's affair; on one rank every crossing is free.
 *
 * Where the matrices of a block are cut over several ranks, the residual stream is cut by tokens:
 * each rank holds the rows of its part.  Into a block (ATTN_IN, MLP_IN, HEAD_IN forward; EMBED_OUT,
 * ATTN_OUT, MLP_OUT backward) every rank gets all rows; out of it (the others) each rank has sums
 * to contribute to all rows, and gets the whole sums of its own.  LOSS: every rank gets what each
 * knows of all tokens.
 *
 * Where rows are cut over several ranks (context.h), everything but attention is about the tokens
 * that are here alone; attention is to all of their rows.
 * Sources  Shoeybi et al. 2019 (tensor parallelism); Korthikanti et al. 2022, section 4.2 (sequence
 *          parallelism) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

enum boundary { EMBED_OUT, ATTN_IN, ATTN_OUT, MLP_IN, MLP_OUT, HEAD_IN, LOSS, BOUNDARY_COUNT };
enum direction { FORWARD, BACKWARD, DIRECTION_COUNT };

struct attention;
struct attention_bwd;
struct attention_fwd;
struct ops;
struct queue;

/* A dense activation [rows, columns]; one's own part of the rows lies in its place. */
struct crossing {
    void *x;
    int rows, columns;
    enum dtype dtype;
};

struct plan {
    int parts, part; /* of the matrices, the heads and the vocabulary; 1, 0 where they are whole */
    bool stream_cut; /* the residual stream is cut into as many parts */
    int contexts, context; /* ranks that rows are cut over, and which one this is; 0, 0: none */
    /* Replaces x by what the next piece of the model must see.  Collective. */
    enum status (*cross)(const struct plan *, enum boundary, enum direction, struct crossing *x,
                         struct queue *on);
    /* *x, in memory that the host reaches, too, becomes the largest that any part has.  Collective;
     * where there are parts. */
    enum status (*largest)(const struct plan *, float *x, struct queue *on);
    /* Where there are contexts, instead of attention_forward and attention_backward.  Collective.
     */
    enum status (*attend)(const struct plan *, const struct ops *, const struct attention *,
                          const struct attention_fwd *, struct queue *);
    enum status (*attend_backward)(const struct plan *, const struct ops *,
                                   const struct attention *, const struct attention_bwd *,
                                   struct queue *);
};
