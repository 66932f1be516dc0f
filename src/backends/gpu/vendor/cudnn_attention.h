/* attention_cudnn.h -- attention by cuDNN, where it has an engine whose bits do not depend on
 * scheduling and whose memory is within bounds.
 *
 * Takes    All keys at once, as many as queries, in bf16; T a multiple of 128, K of 8 up to 256;
 *          bounds, if any, that are documents one behind the other in rows, not too many.
 * Memory   A plan's workspace and our working memory come from the queue's scratch.  Forward takes
 *          next to none.  A reproducible backward stores T x T numbers of two bytes for every head
 *          that it does at once: so it goes by as many rows or key heads as are within
 *          ATTENTION_MOST_BYTES, and there is none where one head is beyond that.
 * Order    Plans are made over a measuring queue and kept: about half a second each. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/attention.h"
#include "tensor/queue.h"

enum { ATTENTION_TILE = 128 };                              /* what T is a multiple of */
static const size_t ATTENTION_MOST_BYTES = (size_t)9 << 28; /* 2.25 GiB */

struct attention_cudnn;

/* `stream` of the device that is current.  *out NULL: this cuDNN is older than any that is known to
 * be right.  DEVICE: cuDNN does not start. */
enum status attention_cudnn_open(struct attention_cudnn **out, void *stream, bool deterministic);
/* For a device that need not be there, by its properties in cuDNN's JSON: it only makes plans.
 * UNSUPPORTED: cuDNN does not understand them. */
enum status attention_cudnn_describe(struct attention_cudnn **out, const char *json, size_t length,
                                     bool deterministic);
void attention_cudnn_close(struct attention_cudnn *c);

/* *done: it was this that computed it.  Over a measuring queue: plans are made, scratch is taken;
 * bounds not NULL mean that there will be documents. */
enum status attention_cudnn_forward(struct attention_cudnn *c, const struct attention *a,
                                    const struct attention_fwd *io, struct queue *on, bool *done);
enum status attention_cudnn_backward(struct attention_cudnn *c, const struct attention *a,
                                     const struct attention_bwd *io, struct queue *on, bool *done);

/* A plan that was made. */
struct attention_way {
    struct attention what;
    bool backward, documents;
    bool found;             /* there is one: below is what it is */
    int engine;             /* cuDNN's number */
    int rows, groups;       /* done at once: rows or documents, and key heads */
    size_t workspace, work; /* bytes for cuDNN, and beside it */
};
/* False: there are no more than i. */
bool attention_cudnn_way(const struct attention_cudnn *c, int i, struct attention_way *out);
