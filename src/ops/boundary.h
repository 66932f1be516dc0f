/* boundary.h -- named boundaries in the model where ranks communicate.
 *
 * Model code is written for one device and crosses these boundaries in order.  The parallel plan
 * decides what a crossing does: nothing on one rank, otherwise a collective.
 *
 * Tensor parallelism with sequence parallelism: the weight matrices of a block are sharded over
 * ranks, and the residual stream is sharded by tokens.  Before a sharded matrix (ATTN_IN, MLP_IN,
 * HEAD_IN forward; EMBED_OUT, ATTN_OUT, MLP_OUT backward) an all-gather gives every rank all
 * rows.  After one (the other crossings) each rank has partial sums of all rows, and a
 * reduce-scatter gives it the totals of its own rows; backward overlaps that of ATTN_IN and MLP_IN
 * with the GEMM of the weights' gradient.  LOSS all-gathers the loss statistics.
 * QK_NORM all-reduces sums over rows of queries and keys, whose elements are sharded.
 *
 * Context parallelism (context.h): sequences are sharded over ranks.  All ops are local to the
 * rank's tokens except attention, which needs the keys and values of whole sequences.
 * Sources  Shoeybi et al. 2019 (tensor parallelism); Korthikanti et al. 2022, section 4.2
 *          (sequence parallelism) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

enum boundary {
    EMBED_OUT,
    ATTN_IN,
    ATTN_OUT,
    MLP_IN,
    MLP_OUT,
    HEAD_IN,
    LOSS,
    QK_NORM,
    BOUNDARY_COUNT
};
enum direction { FORWARD, BACKWARD, DIRECTION_COUNT };

struct attention;
struct attention_bwd;
struct attention_fwd;
struct ops;
struct queue;

/* A dense activation [rows, columns] of all ranks' rows; a rank's own rows are at their offset. */
struct crossing {
    void *x;
    int rows, columns;
    enum dtype dtype;
    /* Work that does not use x, which the plan does while x is in flight; NULL: none. */
    enum status (*overlapped)(void *work);
    void *work;
    bool is_bytes; /* FP8: elements are bytes, and dtype is ignored; not for sums */
};
static inline enum status boundary_do_overlapped(const struct crossing *c)
{
    return c->overlapped ? c->overlapped(c->work) : STATUS_OK;
}

struct parallel_plan {
    /* tensor parallelism (tp_size, tp_rank): the number of ranks that matrices, heads and
     * vocabulary are sharded over, and this rank's index; 1, 0: none */
    int parts, part;
    bool sequence_parallel; /* the residual stream is sharded over the same ranks, by tokens */
    /* context parallelism (cp_size, cp_rank): the number of ranks that sequences are sharded over,
     * and this rank's index; 0, 0: none */
    int contexts, context;
    /* Replaces x by the input of the next part of the model.  Collective. */
    enum status (*cross)(const struct parallel_plan *, enum boundary, enum direction,
                         struct crossing *x, struct queue *queue);
    /* All-gathers the amaxes of a tensor's parts, one of each tensor-parallel rank; this rank's is
     * amaxes[part].  Collective; NULL without tensor parallelism. */
    enum status (*gather_amaxes)(const struct parallel_plan *, float *amaxes, struct queue *queue);
    /* Replace attention_forward and attention_backward under context parallelism.  Collective. */
    enum status (*attend)(const struct parallel_plan *, const struct ops *,
                          const struct attention *, const struct attention_fwd *, struct queue *);
    enum status (*attend_backward)(const struct parallel_plan *, const struct ops *,
                                   const struct attention *, const struct attention_bwd *,
                                   struct queue *);
};
