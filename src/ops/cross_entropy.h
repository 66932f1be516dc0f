/* cross_entropy.h -- softmax cross-entropy: the loss of each token and, in place, the gradient of
 * the logits.
 *
 * Axes     N tokens (a chunk of the batch), V vocabulary.
 * Parts    With a vocabulary sharded over ranks (vocab-parallel cross-entropy), each rank first
 *          computes statistics of its logits (LOSS_STATS).  LOSS_FROM_STATS computes loss and
 *          gradient from all ranks' statistics.
 * Units    Loss in nats: the cross-entropy alone, without the z-loss, times the token's weight.
 *          dlogits = (softmax(logits) (1 + 2 z_loss lse) - onehot(label)) * scale * weight.
 * Z-loss   With z_loss, dlogits is the gradient of weight (loss + z_loss lse^2), which keeps the
 *          log-sum-exp (lse) of a token's logits near 0.
 * Order    In f32 over one row, in a fixed order.
 * Sources  Chowdhery et al. 2022 (PaLM), section 5 (z-loss) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { LABEL_IGNORED = -100 }; /* no loss, zero gradient */

/* Statistics of a token's logits in one part of the vocabulary: log-sum-exp, maximum and its id,
 * and the label's logit (-inf if in another part). */
enum loss_stat { STAT_LSE, STAT_MAX, STAT_ARGMAX, STAT_LABEL, LOSS_STATS_COUNT };
enum loss_step { LOSS_WHOLE, LOSS_STATS, LOSS_FROM_STATS };

struct cross_entropy {
    int N, V;         /* V: local logits */
    int row;          /* elements of a row: V and padding, whose gradient is 0; 0: V */
    enum dtype dtype; /* of the logits */
    float scale;      /* of the gradient: 1 / valid tokens of the global batch; io.scale_1 */
    float z_loss;     /* coefficient of the z-loss; 0: none */
    bool gradient;    /* replace the logits by their gradient */
    enum loss_step step;
    int first;      /* token id of the first local logit */
    int parts;      /* LOSS_FROM_STATS: parts of the vocabulary */
    bool is_packed; /* the logits are packed (ops.h) */
};
struct cross_entropy_io {
    void *logits_NV;
    const int32_t *labels_N; /* ids in the whole vocabulary, or LABEL_IGNORED */
    float *loss_N;           /* 0 where ignored */
    int32_t *argmax_N;       /* argmax id (the lowest on ties); may be NULL */
    float *stats_PN4;      /* LOSS_STATS: output of one part; LOSS_FROM_STATS: input of all parts */
    const float *weight_N; /* of each token's loss; NULL: 1 */
    const float *scale_1; /* replaces `scale`, so that a recorded graph can read another; or NULL */
};

static inline float cross_entropy_scale(const struct cross_entropy *a,
                                        const struct cross_entropy_io *io)
{
    return io->scale_1 ? *io->scale_1 : a->scale;
}

static inline int cross_entropy_row(const struct cross_entropy *a)
{
    return a->row ? a->row : a->V;
}

static inline float cross_entropy_weight(const struct cross_entropy_io *io, size_t n)
{
    return io->weight_N ? io->weight_N[n] : 1;
}

/* True if the label's logit is local. */
static inline bool cross_entropy_has_label(const struct cross_entropy *a, int32_t label)
{
    return label != LABEL_IGNORED && label >= a->first && label - a->first < a->V;
}

/* What the z-loss multiplies the softmax by in the gradient. */
static inline float cross_entropy_z_factor(const struct cross_entropy *a, float lse)
{
    return a->z_loss > 0 ? 1 + 2 * a->z_loss * lse : 1;
}

/* Merges the statistics of token n: sets loss_N[n] and argmax_N[n] and returns the log-sum-exp over
 * the whole vocabulary. */
float cross_entropy_merge(const struct cross_entropy *a, const struct cross_entropy_io *io,
                          size_t n);

/* SHAPE: N or V below 1, a row shorter than V, a negative z_loss, or LOSS_FROM_STATS without
 * parts. */
enum status cross_entropy(const struct ops *, const struct cross_entropy *,
                          const struct cross_entropy_io *, struct queue *);
