// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Most likely first; equal logits by id, so that the order is total. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

void sampling_penalize(float *logits_V, int V, double penalty, const int32_t *ids, size_t count)
{
    if (penalty == 1 || !(penalty > 0)) return;
    for (size_t i = 0; i < count; i++) {
        bool is_repeated = false; /* each token once */
        for (size_t k = 0; k < i && !is_repeated; k++) is_repeated = ids[k] == ids[i];
        if (is_repeated || ids[i] < 0 || ids[i] >= V) continue;
        float *logit = &logits_V[ids[i]];
        *logit = *logit > 0 ? *logit / (float)penalty : *logit * (float)penalty;
    }
}

double sampling_log_probability(const float *logits_V, int V, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < V; i++) max = fmax(max, (double)logits_V[i]);
    for (int i = 0; i < V; i++) sum += exp((double)logits_V[i] - max);
    return (double)logits_V[id] - max - log(sum);
}

int32_t sampling_pick(const struct sampling *s, const float *logits_V, int V, uint64_t position,
                      struct candidate *order_V)
{
    int best = 0;
    for (int i = 1; i < V; i++) best = logits_V[i] > logits_V[best] ? i : best;
    if (!(s->temperature > 0)) return best;
    for (int i = 0; i < V; i++) order_V[i] = (struct candidate){logits_V[i], i};
    qsort(order_V, (size_t)V, sizeof *order_V, by_logit);
    int keep = s->top_k > 0 && s->top_k < V ? (int)s->top_k : V;
    double total = 0, max = (double)order_V[0].logit;
    double least = s->min_p > 0 ? max + s->temperature * log(s->min_p) : -INFINITY;
    while (keep > 1 && (double)order_V[keep - 1].logit < least) keep--;
    for (int i = 0; i < keep; i++) total += exp(((double)order_V[i].logit - max) / s->temperature);
    double nucleus = total * (s->top_p < 1 ? s->top_p : 1), kept = 0;
    int end = 0;
    while (end < keep && (end == 0 || kept < nucleus))
        kept += exp(((double)order_V[end++].logit - max) / s->temperature);
    double draw = rng_uniform(s->seed, RNG_SAMPLE, 0, position) * kept;
    for (int i = 0; i < end; i++) {
        draw -= exp(((double)order_V[i].logit - max) / s->temperature);
        if (draw < 0) return order_V[i].id;
    }
    return order_V[end - 1].id;
}
