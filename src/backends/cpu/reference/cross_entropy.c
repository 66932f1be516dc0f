// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

/* Returns the log-sum-exp of a row; also its largest logit and that logit's ID. */
static float log_sum_exp(const struct cross_entropy *a, const void *logits_V, size_t row,
                         float *row_max, int32_t *best)
{
    size_t V = (size_t)a->V;
    float sum = 0;
    *row_max = -INFINITY, *best = a->first;
    for (size_t v = 0; v < V; v++) {
        float x = element_get(logits_V, row + v, a->dtype);
        if (x > *row_max) *row_max = x, *best = a->first + (int32_t)v;
    }
    for (size_t v = 0; v < V; v++) sum += expf(element_get(logits_V, row + v, a->dtype) - *row_max);
    return *row_max + logf(sum);
}

enum status reference_cross_entropy(const struct cross_entropy *a,
                                    const struct cross_entropy_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t V = (size_t)a->V, row = (size_t)cross_entropy_row(a);
    for (size_t n = 0; n < (size_t)a->N; n++) {
        int32_t label = io->labels_N[n], best = 0;
        float row_max = 0, lse, label_logit = -INFINITY, *stats = io->stats_PN4;
        float weight = cross_entropy_weight(io, n), scale = cross_entropy_scale(a, io);
        if (cross_entropy_has_label(a, label))
            label_logit =
                element_get(io->logits_NV, n * row + (size_t)(label - a->first), a->dtype);
        if (a->step == LOSS_FROM_STATS) {
            lse = cross_entropy_merge(a, io, n);
        } else {
            lse = log_sum_exp(a, io->logits_NV, n * row, &row_max, &best);
        }
        if (a->step == LOSS_STATS) {
            stats += n * LOSS_STATS_COUNT;
            stats[STAT_LSE] = lse, stats[STAT_MAX] = row_max;
            stats[STAT_ARGMAX] = (float)best, stats[STAT_LABEL] = label_logit;
            continue;
        }
        if (a->step == LOSS_WHOLE) {
            if (io->argmax_N) io->argmax_N[n] = best;
            io->loss_N[n] = label == LABEL_IGNORED ? 0 : (lse - label_logit) * weight;
        }
        for (size_t v = 0; v < V && a->gradient; v++) {
            float p = expf(element_get(io->logits_NV, n * row + v, a->dtype) - lse);
            p *= cross_entropy_z_factor(a, lse);
            float d = (p - (float)(a->first + (int32_t)v == label)) * (scale * weight);
            element_set(io->logits_NV, n * row + v, a->dtype, label == LABEL_IGNORED ? 0 : d);
        }
        for (size_t v = V; v < row && a->gradient; v++)
            element_set(io->logits_NV, n * row + v, a->dtype, 0);
    }
    return STATUS_OK;
}
