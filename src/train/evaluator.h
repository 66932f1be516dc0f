/* evaluator.h -- the mean loss of a model over the batches of a loader.
 *
 * Memory   Buffers come from the arena given to evaluator_alloc, which may be a sizing arena; its
 *          memory is shared by host and device.
 * Ranks    Every rank takes part to the end; readers that have run out of rows compute on empty
 *          batches, since others may need their shards of the weights.
 * Order    Losses are summed in f64, token by token: the mean does not depend on the batch size. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/batch.h"
#include "data/loader.h"
#include "parallel/pipeline.h"

/* The caller sets every field that is not marked `evaluator_alloc` before calling it, which sets
 * state, forward_only and the schedule's num_microbatches of the pipeline. */
struct evaluator {
    struct pipeline pipeline;
    int microbatch_rows;         /* 0: all rows of a batch */
    const struct comm *readers;  /* data-parallel ranks: different rows; borrowed */
    const struct comm *peers;    /* model-parallel ranks: the same rows; borrowed */
    const struct comm *contexts; /* context-parallel ranks: other tokens of these rows; borrowed */
    bool causal, documents;      /* attention mask; see struct microbatch */
    bool has_weights;            /* of a diffusion objective (struct batch) */
    bool is_exact;               /* losses are summed exactly: the same bits for any readers */
    bool has_marks;              /* also sum the losses of labels that are `mark` */
    int32_t mark;
    /* Whole rows, and this rank's tokens of them; these and the rest: evaluator_alloc. */
    struct batch batch, local;
    struct microbatch *microbatches; /* owned */
    float *loss_BT;
    int32_t *best_BT;
};

struct evaluation {
    double loss_sum;      /* nats */
    int64_t tokens;       /* valid (struct batch) */
    int64_t bytes;        /* of the text they stand for; 0: unknown */
    int64_t correct;      /* tokens whose label was the most likely one */
    double mark_loss_sum; /* over labels that are the mark */
    int64_t marks;
    int64_t batches;
};

/* For batches of B rows of T tokens. */
void evaluator_alloc(struct evaluator *e, int B, int T, struct arena *run);
void evaluator_release(struct evaluator *e);
/* Forward of one batch as a sizing pass. */
enum status evaluator_size(struct evaluator *e, struct arena *step);
/* Computes the rows that the caller has filled in e->batch on every one of the peers.  Then, where
 * pipeline_has_loss, loss_BT and best_BT hold the results for e->local.  Collective. */
enum status evaluator_forward(struct evaluator *e, struct arena *step);
/* Evaluates at most `batches` batches, -1: all of the loader's.  Stops early when a signal is
 * pending on any rank.  `loader` is NULL if another of the peers reads.  Collective. */
enum status evaluator_run(struct evaluator *e, struct loader *loader, int64_t batches,
                          struct arena *step, struct evaluation *out);
/* `data` is for the message.  DATA: no token has a label. */
enum status evaluator_check_tokens(const struct evaluation *v, const char *data);
/* The same, and DIVERGED: the loss is not finite. */
enum status evaluator_check(const struct evaluation *v, const char *data);
