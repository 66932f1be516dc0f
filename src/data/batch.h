/* batch.h -- a batch of training data: rows of token IDs with their labels.
 *
 * Axes     B rows (sequences), T tokens of a row.
 * Memory   The arrays are the caller's, or come from an arena with batch_alloc; during a sizing
 *          pass they are NULL.
 * Ranks    Under context parallelism each rank of `contexts` computes on a part of every row's
 *          tokens (ops/context.h): a second batch with T / size tokens per row. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "tensor/queue.h"

#include <stdbool.h>
#include <stdint.h>

struct batch {
    int B, T;
    int32_t *ids_BT;            /* inputs */
    int32_t *labels_BT;         /* LABEL_IGNORED (-100) where no loss is computed */
    int32_t *start_BT, *end_BT; /* bounds of each token's document within its row */
    float *weight_BT;           /* has_weights: of each token's loss, 0 where the token is not
                                   valid; otherwise NULL */
    bool has_weights;
    /* batch_order_labels: of each microbatch, its tokens with a label before those without; the
     * inverse of that order; and by microbatch, how many have a label */
    int32_t *order_BT, *inverse_order_BT, *num_labels;
    int32_t *block; /* batch_alloc: ids, labels, start, end, order and its inverse, `stride`
                       elements apart */
    size_t stride;
    int64_t valid;   /* tokens over which the loss is averaged: those with a label other than
                      LABEL_IGNORED, or has_weights: those with a weight */
    int64_t bytes;   /* of text that the valid tokens stand for (for bits per byte); 0: unknown */
    int64_t padding; /* positions behind the last document of a row that has one */
};

/* Allocates the arrays of B rows of T tokens. */
void batch_alloc(struct batch *b, int B, int T, struct arena *run);
/* Adds weights to an allocated batch. */
void batch_alloc_weights(struct batch *b, struct arena *run);

/* Whether the loss is averaged over token n, among others. */
bool batch_is_valid(const struct batch *b, size_t n);
/* Valid tokens of these rows. */
int64_t batch_count_valid(const struct batch *b, int first_row, int rows);
/* Fills order, inverse_order and num_labels of each microbatch, all of the same number of rows.
 * Where all tokens have a label, order and inverse_order are not written.  Call before
 * batch_upload. */
void batch_order_labels(struct batch *b, int num_microbatches);
/* Copies a batch of one row to row i, and adds its counts. */
void batch_copy_row(struct batch *b, int i, const struct batch *row);
/* Makes row i one document of padding without labels. */
void batch_pad_row(struct batch *b, int i);
/* Random IDs and labels below V; each row is one document.  For benchmarks. */
void batch_fill_random(struct batch *b, int V);

/* *out is the batch with arrays that kernels read: copies in device memory from `step`, for which
 * queue_host_copy finds the host's; on a CPU the same arrays.  The host may change its own after
 * queue_wait. */
enum status batch_upload(const struct batch *b, struct queue *queue, struct arena *step,
                         struct batch *out);

/* Collective: broadcasts the batch from rank 0 of `peers`.  COMM: a rank failed. */
enum status batch_broadcast(struct batch *b, const struct comm *peers);

/* Allocates the batch of this rank's part of the tokens; without context parallelism `local` shares
 * the arrays of `whole`. */
void batch_alloc_part(const struct batch *whole, const struct comm *contexts, struct batch *local,
                      struct arena *run);
/* Copies this rank's tokens from complete rows.  The counts remain those of the complete
 * rows.  `causal` selects the zigzag layout. */
void batch_copy_part(const struct batch *whole, const struct comm *contexts, bool causal,
                     struct batch *local);
