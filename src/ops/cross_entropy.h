/* cross_entropy.h -- loss of each token and, in place, the gradient of the logits.
 *
 * Axes     N tokens (a chunk of the batch), V vocabulary.
 * Units    Loss in nats.  dlogits = (softmax(logits) - onehot(label)) * scale.
 * Order    In f32 over one row, in a fixed order. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { LABEL_IGNORED = -100 }; /* no loss, zero gradient */

struct cross_entropy {
    int N, V;
    enum dtype dtype; /* of the logits */
    float scale;      /* of the gradient: 1 / valid tokens of the global batch */
    bool gradient;    /* replace the logits by their gradient */
};
struct cross_entropy_io {
    void *logits_NV;
    const int32_t *labels_N; /* in [0, V) or LABEL_IGNORED */
    float *loss_N;           /* 0 where ignored */
    int32_t *best_N;         /* most likely id (the lowest on ties), or NULL */
};

enum status cross_entropy(const struct ops *, const struct cross_entropy *,
                          const struct cross_entropy_io *, struct queue *);
