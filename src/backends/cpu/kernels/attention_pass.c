/* attention_pass.c (cpu) -- see attention_pass.h.
 *
 * A processor with tiles computes with them and with its vectors at once, but looks only some
 * hundred operations ahead: so products are cut in pieces of four, and the pieces lie between the
 * rows that are softened.  A query's top is not looked for among all scores: it is the first
 * panel's, a new one is found where odds leave their range, and products begin with it, so that
 * what they come to is small and the odds of the largest score are exact. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pass.h"

#include "backends/cpu/kernels/attention_soften.h"
#include "backends/cpu/kernels/attention_tiles.h"

#include <math.h>

#if defined(TILES)
enum { PAIRS_EACH = PANEL / 2 };

/* Panels of keys whose odds wait for their values, in one or the other half of them. */
struct group {
    size_t first, count, half;
};

struct walk {
    const struct sight *sight;
    struct group filling, met;
    float *held;  /* where the sums belong that the tiles hold */
    size_t width; /* from which on `met` meets values */

    /* what scores begin with: -top */
    float less[PANEL] __attribute__((aligned(64)));
};

static inline float *scores_of(const struct pass *p, size_t key)
{
    return p->scores + key % 2 * SUMS;
}
static inline char *odds_of(const struct pass *p, struct group g)
{
    return p->odds + g.half * PASS_GROUP * STEP;
}

static struct product keys_product(const struct pass *p, const struct walk *w, size_t key)
{
    return (struct product){.left = p->left + key * p->widths * STEP,
                            .right = p->queries,
                            .left_step = STEP,
                            .right_step = STEP,
                            .right_near = true,
                            .steps = p->widths,
                            .from = w->less,
                            .one_row = true,
                            .to = scores_of(p, key)};
}

/* What a group of keys, whose odds lie side by side, adds to 32 of K of out. */
static struct product values_product(const struct pass *p, struct group g, size_t width)
{
    float *out = p->out + width * SUMS;
    return (struct product){.left = p->values + (width * p->keys + g.first) * STEP,
                            .right = odds_of(p, g),
                            .left_step = STEP,
                            .right_step = STEP,
                            .right_near = true,
                            .steps = g.count,
                            .from = out,
                            .to = out};
}

static void finish(const struct pass *p, struct walk *w, struct group g, size_t width)
{
    for (; g.count && width < p->widths; width++) {
        struct product x = values_product(p, g, width);
        product_run(&x, &w->held);
    }
}

static void put_held(const struct pass *p, struct walk *w)
{
    product_end(&w->held, p->scores + 2 * SUMS);
}

static void multiply_keys(const struct pass *p, struct walk *w, size_t key)
{
    struct product x = keys_product(p, w, key);
    product_run(&x, &w->held);
    put_held(p, w);
}

/* All odds so far meet their values; the group that is filled begins anew. */
static void settle(const struct pass *p, struct walk *w)
{
    finish(p, w, w->met, w->width);
    finish(p, w, w->filling, 0);
    put_held(p, w);
    w->met.count = 0;
    w->filling.first += w->filling.count, w->filling.count = 0;
}

/* A panel's scores, relative to tops that are its largest where those are larger; what has been
 * summed is made relative to them. */
static void raise_top(struct pass *p, struct walk *w, size_t key, bool any)
{
    float *scores = scores_of(p, key), top[PANEL], keep[PANEL];
    memset(w->less, 0, sizeof w->less);
    multiply_keys(p, w, key);
    mask(w->sight, key, scores);
    memcpy(top, p->top, sizeof top);
    for (size_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            top[i] = scores[k * PANEL + i] > top[i] ? scores[k * PANEL + i] : top[i];
    for (size_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) scores[k * PANEL + i] -= top[i];
    for (size_t i = 0; any && i < PANEL; i++)
        p->sum[i] *= keep[i] = exp2f((p->top[i] - top[i]) * p->factor);
    for (size_t i = 0; i < PANEL; i++) p->top[i] = top[i], w->less[i] = -top[i];
    for (size_t k = 0; any && k < p->widths * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) p->out[k * PANEL + i] *= keep[i];
}

static inline void soften_until(struct softening *s, const float *scores, char *odds, size_t *done,
                                size_t until)
{
    for (; *done < until; ++*done) soften_keys(s, scores + 2 * *done * PANEL, odds + *done * 64);
}

/* The panel's odds again, once the tops are high enough, and the next one's scores, which began
 * with the old ones; what is still beyond is not a number. */
static void soften_again(struct pass *p, struct walk *w, size_t key, bool next, float *sum)
{
    size_t done = 0;
    settle(p, w);
    raise_top(p, w, key, true);
    struct softening s = soften_begin(p->factor);
    soften_until(&s, scores_of(p, key), odds_of(p, w->filling), &done, PAIRS_EACH);
    uint32_t beyond = soften_end(&s, sum);
    for (int q = 0; q < PANEL; q++)
        if (beyond >> q & 1) sum[q] = NAN;
    if (next) multiply_keys(p, w, key + 1);
}

/* The odds of a panel of keys, while the next one's scores and values of others are multiplied. */
static void step(struct pass *p, struct walk *w, size_t key, bool next)
{
    size_t part = (w->filling.count + 1) * p->widths, made = 0, done = 0;
    size_t until = w->met.count ? (part + PASS_GROUP - 1) / PASS_GROUP : w->width;
    bool some = until > w->width;
    size_t all = (next ? p->widths : 0) + (some ? until - w->width : 0) * w->met.count;
    const float *scores = scores_of(p, key);
    char *odds = odds_of(p, w->filling) + w->filling.count * STEP;
    struct softening s = soften_begin(p->factor);
    while (made < all) {
        struct product x =
            next && !made ? keys_product(p, w, key + 1) : values_product(p, w->met, w->width++);
        for (size_t i = 0; i < x.steps; i++) {
            product_step(&x, i, &w->held);
            soften_until(&s, scores, odds, &done, PAIRS_EACH * ++made / all);
        }
    }
    soften_until(&s, scores, odds, &done, PAIRS_EACH);
    if (!some) put_held(p, w);
    float sum[PANEL];
    if (soften_end(&s, sum)) soften_again(p, w, key, next, sum);
    for (size_t q = 0; q < PANEL; q++) p->sum[q] += sum[q];
}

void KERNEL(attention_pass)(struct pass *p, const struct sight *s, size_t begin, size_t end)
{
    struct walk w = {.sight = s, .filling = {.first = begin}, .held = p->scores + 2 * SUMS};
    p->room = SOFTEN_ROOM - 1;
    if (begin >= end) return;
    raise_top(p, &w, begin, false);
    for (size_t key = begin; key < end; key++) {
        if (key > begin) mask(s, key, scores_of(p, key));
        ahead_ask(&p->ahead, 4);
        step(p, &w, key, key + 1 < end);
        if (++w.filling.count < PASS_GROUP) continue;
        finish(p, &w, w.met, w.width);
        w.met = w.filling, w.width = 0;
        w.filling = (struct group){key + 1, 0, !w.met.half};
    }
    settle(p, &w);
}
#else
void KERNEL(attention_pass)(struct pass *p, const struct sight *s, size_t begin, size_t end)
{
    (void)p, (void)s, (void)begin, (void)end;
    BUG_IF(true);
}
#endif
