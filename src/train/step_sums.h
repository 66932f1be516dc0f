/* step_sums.h -- the sums of a step over microbatches and ranks: its loss and gradient norm.
 *
 * Order    In f64, over groups of ranks in the order of comm.h.  Elastic sums (parallel/elastic.h)
 *          are exact over microbatches, ranks and equal parts of the units, so they do not depend
 *          on the number of data-parallel ranks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optim.h"
#include "parallel/elastic.h"
#include "parallel/groups.h"
#include "parallel/replicas.h"

/* A part of the step's loss, as loss_norm scales it, and the factor that makes it the mean of its
 * own tokens. */
struct loss_share {
    double loss, mean_scale;
};

/* The caller sets the first group of fields; their pointers are borrowed. */
struct step_sums {
    const struct groups *groups;
    const struct ops *ops;
    struct queue *queue;
    const struct optim *optim;
    const struct layout *layout;     /* of this rank's stages */
    const struct replicas *replicas; /* REPLICATED_COUNT */
    const struct elastic *elastic;   /* NULL: in the order of comm.h */

    /* Elastic sums only; owned, step_sums_init. */
    int num_microbatches;
    struct loss_share *shares; /* of this rank's microbatches; the caller fills them in each step */
    double *scratch;
};

struct step_totals {
    double loss;      /* average loss over ranks */
    double max_loss;  /* the largest of the ranks' own means; elastic: of the microbatches' */
    double grad_norm; /* L2 */
};

/* Allocates the host memory of elastic sums, for that many microbatches of this rank. */
void step_sums_init(struct step_sums *s, int num_microbatches);
void step_sums_release(struct step_sums *s);

/* Reduces loss and gradient norm over ranks, in one collective where both sum over the same group.
 * `local`: of this rank's microbatches; `gradients`: its shard.  Collective. */
enum status step_sums_reduce(const struct step_sums *s, const struct loss_share *local,
                             const void *gradients, struct step_totals *totals);
/* The L2 norm of the whole model's weights or gradients, each counted once; `flat`: this rank's
 * shard.  Collective. */
enum status step_sums_norm(const struct step_sums *s, const float *flat, double *norm);
/* The same of split weights, which are joined in x, a chunk at a time; not with elastic sums. */
struct split_chunk {
    const bf16 *half;
    const uint16_t *low;
    float *x;
    size_t elements; /* of x */
};
enum status step_sums_split_norm(const struct step_sums *s, const struct split_chunk *c,
                                 double *norm);
/* What step_sums_reduce computes of this rank's gradients, as a sizing pass. */
enum status step_sums_size(const struct step_sums *s, const void *gradients);
