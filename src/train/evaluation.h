/* evaluation.h -- the mean loss of a model over what a loader yields.
 *
 * Memory   Buffers come from the arena given to evaluator_take, which also measures; it is of
 *          memory that the host and its device share.
 * Ranks    Every rank calls; those that have run out of rows compute on without any, since others
 *          may need what they hold.
 * Order    Losses are summed in f64, token after token, so the mean has one value. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "data/loader.h"
#include "parallel/pipeline.h"

/* What is not said to be set by evaluator_take is set by the caller before it. */
struct evaluator {
    struct pipeline pipeline; /* micros, forward_only, state: evaluator_take */
    int micro_rows;           /* rows that go through it at once; 0: all */
    /* Borrowed: ranks that read different rows, that compute on the same rows, and those of them
     * that share out a row's tokens. */
    const struct comm *readers, *peers, *contexts;
    bool causal, documents; /* the mask, see struct micro_batch */
    bool has_marks;         /* labels of `mark` are summed apart, too */
    int32_t mark;
    struct batch batch, here;   /* whole rows, what is here of them; these: evaluator_take */
    struct micro_batch *micros; /* owned */
    float *loss_BT;
    int32_t *best_BT;
};

struct evaluation {
    double loss_sum;      /* nats */
    int64_t tokens;       /* that counted */
    int64_t bytes;        /* of text behind them; 0: unknown */
    int64_t correct;      /* tokens whose label was the likeliest */
    double mark_loss_sum; /* of the labels that are the mark */
    int64_t marks;
    int64_t batches;
};

void evaluator_take(struct evaluator *e, int B, int T, struct arena *run);
void evaluator_release(struct evaluator *e);
/* One batch forward, for measuring. */
enum status evaluator_measure(struct evaluator *e, struct arena *step);
/* At most `batches` batches, -1: until the loader ends.  Stops early when a signal is pending on
 * any rank.  `loader` is NULL where another of the peers reads. */
enum status evaluator_run(struct evaluator *e, struct loader *loader, int64_t batches,
                          struct arena *step, struct evaluation *out);
