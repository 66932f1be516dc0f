// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Most likely first; equal logits by id, so that the order is total. */
static bool comes_before(struct candidate x, struct candidate y)
{
    return x.logit != y.logit ? x.logit > y.logit : x.id < y.id;
}

/* e^x for x <= 0 within 3e-7 relative, in a form that compilers vectorize; 0 below -87.  Cody-Waite
 * reduction by ln 2 in two parts, then the Taylor polynomial of degree 6. */
static float fast_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float held = x < -87.0f ? -87.0f : x, n = held * 1.44269504f + magic - magic;
    float r = held - n * 0.693359375f + n * 2.12194440e-4f;
    float high = 1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r / 720));
    float p = 1 + r * (1 + r * (0.5f + r * high));
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : p * power;
}

enum { WIDTH = 8, CHUNK = 256 }; /* loops over WIDTH become SIMD registers */

/* NaN is ignored; -inf: all are NaN. */
static float find_max(const float *logits_V, int V)
{
    float max[WIDTH], all = -INFINITY;
    int i = 0;
    for (int j = 0; j < WIDTH; j++) max[j] = -INFINITY;
    for (; i + WIDTH <= V; i += WIDTH)
        for (int j = 0; j < WIDTH; j++)
            max[j] = logits_V[i + j] > max[j] ? logits_V[i + j] : max[j];
    for (; i < V; i++) max[0] = logits_V[i] > max[0] ? logits_V[i] : max[0];
    for (int j = 0; j < WIDTH; j++) all = max[j] > all ? max[j] : all;
    return all;
}

/* The sum of exp(logit - max) over all tokens. */
static double sum_exp(const float *logits_V, int V, float max)
{
    double total = 0;
    for (int begin = 0; begin < V; begin += CHUNK) {
        int count = V - begin < CHUNK ? V - begin : CHUNK;
        float weights[CHUNK] = {0}, sums[WIDTH] = {0};
        for (int i = 0; i < count; i++) weights[i] = fast_exp(logits_V[begin + i] - max);
        for (int i = 0; i < CHUNK; i += WIDTH)
            for (int j = 0; j < WIDTH; j++) sums[j] += weights[i + j];
        for (int j = 0; j < WIDTH; j++) total += (double)sums[j];
    }
    return total;
}

void sampling_penalize(const struct sampling_penalty *p, const float *logits_V, int V,
                       float *penalized_V)
{
    const float by = (float)p->by;
    memcpy(penalized_V, logits_V, (size_t)V * sizeof *penalized_V);
    for (size_t i = 0; i < p->count; i++) {
        int32_t id = p->ids[i];
        if (id < 0 || id >= V) continue;
        penalized_V[id] = logits_V[id] > 0 ? logits_V[id] / by : logits_V[id] * by;
    }
}

double sampling_log_sum(const float *logits_V, int V)
{
    float max = find_max(logits_V, V);
    return (double)max + log(sum_exp(logits_V, V, max));
}

/* --- the most likely first --- */

/* Restores the heap, whose root is the most likely, below entry i. */
static void sift_down(struct candidate *heap, int count, int i)
{
    struct candidate moved = heap[i];
    for (int child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && comes_before(heap[child + 1], heap[child])) child++;
        if (!comes_before(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void make_heap(struct candidate *heap, int count)
{
    for (int i = count / 2; i-- > 0;) sift_down(heap, count, i);
}

/* Moves the root to the end: `count` entries become one fewer. */
static struct candidate pop(struct candidate *heap, int count)
{
    struct candidate best = heap[0];
    heap[0] = heap[count - 1], heap[count - 1] = best;
    sift_down(heap, count - 1, 0);
    return best;
}

/* --- sampling --- */

static float weight(const struct candidate *c, float max, double temperature)
{
    return fast_exp((float)(((double)c->logit - (double)max) / temperature));
}

/* Keeps the candidates of top_k and top_p: they move to the end, the most likely one last. Returns
 * how many. */
static int keep_likely(const struct sampling *s, float max, struct candidate *order, int count)
{
    bool limited = s->top_k > 0 && s->top_k < count;
    int keep = limited ? (int)s->top_k : count, kept = 0;
    double total = 0, sum = 0;
    make_heap(order, count);
    for (int i = 0; i < keep && limited; i++) pop(order, count - i);
    for (int i = count - keep; i < count; i++)
        total += (double)weight(&order[i], max, s->temperature);
    while (kept < keep && (kept == 0 || sum < total * s->top_p)) {
        if (!limited) pop(order, count - kept);
        kept++;
        sum += (double)weight(&order[count - kept], max, s->temperature);
    }
    return kept;
}

int32_t sampling_pick(const struct sampling *s, const float *logits_V, int V, uint64_t position,
                      struct candidate *order_V)
{
    float max = find_max(logits_V, V);
    double least = s->min_p > 0 ? (double)max + s->temperature * log(s->min_p) : -INFINITY;
    int count = 0, best = 0;
    while (best + 1 < V && logits_V[best] != max) best++;
    if (!(s->temperature > 0) || logits_V[best] != max) return best;
    /* top_p counts the tokens that min_p drops */
    double first = s->top_p < 1 ? -INFINITY : least;
    for (int i = 0; i < V; i++)
        if ((double)logits_V[i] >= first) order_V[count++] = (struct candidate){logits_V[i], i};
    if ((s->top_k > 0 && s->top_k < count) || s->top_p < 1) {
        int kept = keep_likely(s, max, order_V, count);
        order_V += count - kept, count = kept;
        for (; (double)order_V->logit < least; count--) order_V++;
    }
    double total = 0;
    for (int i = 0; i < count; i++) {
        order_V[i].logit = weight(&order_V[i], max, s->temperature);
        total += (double)order_V[i].logit;
    }
    double draw = rng_uniform(s->seed, RNG_SAMPLE, 0, position) * total;
    for (int i = 0; i < count; i++) {
        draw -= (double)order_V[i].logit;
        if (draw < 0) return order_V[i].id;
    }
    return best;
}
