// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

enum status reference_cross_entropy(const struct cross_entropy *a,
                                    const struct cross_entropy_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    size_t V = (size_t)a->V;
    for (size_t n = 0; n < (size_t)a->N; n++) {
        int32_t label = io->labels_N[n], best = 0;
        float top = -INFINITY, sum = 0;
        for (size_t v = 0; v < V; v++) {
            float x = element_get(io->logits_NV, n * V + v, a->dtype);
            if (x > top) top = x, best = (int32_t)v;
        }
        for (size_t v = 0; v < V; v++)
            sum += expf(element_get(io->logits_NV, n * V + v, a->dtype) - top);
        float lse = top + logf(sum);
        bool counts = label != LABEL_IGNORED;
        if (io->best_N) io->best_N[n] = best;
        io->loss_N[n] =
            counts ? lse - element_get(io->logits_NV, n * V + (size_t)label, a->dtype) : 0;
        for (size_t v = 0; v < V && a->gradient; v++) {
            float p = expf(element_get(io->logits_NV, n * V + v, a->dtype) - lse);
            float d = counts ? (p - (float)((int32_t)v == label)) * a->scale : 0;
            element_put(io->logits_NV, n * V + v, a->dtype, d);
        }
    }
    return STATUS_OK;
}
