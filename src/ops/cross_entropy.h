/* cross_entropy.h -- loss of each token and, in place, the gradient of the logits.
 *
 * Axes     N tokens (a chunk of the batch), V vocabulary.
 * Parts    Where the vocabulary is cut, each part of the logits first gives what it knows of every
 *          token (LOSS_STATS); with all parts' (LOSS_JOINED) follow loss and gradient.
 * Units    Loss in nats.  dlogits = (softmax(logits) - onehot(label)) * scale.
 * Order    In f32 over one row, in a fixed order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { LABEL_IGNORED = -100 }; /* no loss, zero gradient */

/* What is known of a token from a part of its logits: log-sum-exp, the largest and its id, and the
 * label's (-inf where it is not here). */
enum loss_stat { STAT_LSE, STAT_TOP, STAT_BEST, STAT_CHOSEN, LOSS_STATS_COUNT };
enum loss_step { LOSS_WHOLE, LOSS_STATS, LOSS_JOINED };

struct cross_entropy {
    int N, V;         /* V logits here */
    enum dtype dtype; /* of the logits */
    float scale;      /* of the gradient: 1 / valid tokens of the global batch */
    bool gradient;    /* replace the logits by their gradient */
    enum loss_step step;
    int first;       /* id of the first logit here */
    int parts;       /* LOSS_JOINED: of the vocabulary */
    bool is_private; /* ops.h: the logits */
};
struct cross_entropy_io {
    void *logits_NV;
    const int32_t *labels_N; /* ids of the whole vocabulary, or LABEL_IGNORED */
    float *loss_N;           /* 0 where ignored */
    int32_t *best_N;         /* most likely id (the lowest on ties), or NULL */
    float *stats_PN4;        /* LOSS_STATS: to one part's; LOSS_JOINED: from all parts' */
};

/* The label's logit is here. */
static inline bool label_is_here(const struct cross_entropy *a, int32_t label)
{
    return label != LABEL_IGNORED && label >= a->first && label - a->first < a->V;
}

/* Token n from what P parts know: the whole log-sum-exp is returned. */
float loss_join(const struct cross_entropy *a, const struct cross_entropy_io *io, size_t n);

enum status cross_entropy(const struct ops *, const struct cross_entropy *,
                          const struct cross_entropy_io *, struct queue *);
