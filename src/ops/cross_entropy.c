// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

#include <math.h>

float cross_entropy_merge(const struct cross_entropy *a, const struct cross_entropy_io *io,
                          size_t n)
{
    float max = -INFINITY, argmax = 0, label = -INFINITY, sum = 0;
    for (size_t p = 0; p < (size_t)a->parts; p++) {
        const float *s = io->stats_PN4 + (p * (size_t)a->N + n) * LOSS_STATS_COUNT;
        if (s[STAT_MAX] > max) max = s[STAT_MAX], argmax = s[STAT_ARGMAX];
        if (s[STAT_LABEL] > label) label = s[STAT_LABEL];
    }
    for (size_t p = 0; p < (size_t)a->parts; p++)
        sum += expf(io->stats_PN4[(p * (size_t)a->N + n) * LOSS_STATS_COUNT + STAT_LSE] - max);
    float lse = max + logf(sum);
    if (io->argmax_N) io->argmax_N[n] = (int32_t)argmax;
    io->loss_N[n] = io->labels_N[n] == LABEL_IGNORED ? 0 : lse - label;
    return lse;
}

enum status cross_entropy(const struct ops *ops, const struct cross_entropy *a,
                          const struct cross_entropy_io *io, struct queue *queue)
{
    if (a->N < 1 || a->V < 1)
        FAIL(SHAPE, "cross_entropy: N %d, V %d: each must be at least 1", a->N, a->V);
    if (cross_entropy_row(a) < a->V)
        FAIL(SHAPE, "cross_entropy: row of %d elements: must hold V = %d logits", a->row, a->V);
    if (!(a->z_loss >= 0))
        FAIL(SHAPE, "cross_entropy: z_loss %g must not be negative", (double)a->z_loss);
    if (a->step == LOSS_FROM_STATS && a->parts < 1)
        FAIL(SHAPE, "cross_entropy: %d parts: must be at least 1", a->parts);
    OP_RUN(cross_entropy);
}
