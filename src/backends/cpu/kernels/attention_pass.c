/* attention_pass.c (cpu) -- see attention_pass.h.
 *
 * A processor with tiles computes with them and with its vectors at once, but looks only some
 * hundred operations ahead: so products are cut in pieces of four, and the pieces lie between the
 * rows that are softened.  A query's top is not looked for among all scores: it is one that was
 * right for the first panel, and a new one is found where odds leave the range of numbers. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pass.h"

#include "backends/cpu/kernels/attention_soften.h"
#include "backends/cpu/kernels/tiles.h"

#include <math.h>

#if defined(TILES)
enum { SUMS = PANEL * PANEL, STEP = 2 * SUMS, RING = 2 * PASS_GROUP, PAIRS_EACH = PANEL / 2 };
enum { LINE = PANEL * sizeof(float), LOWER = 16 * PANEL };

/* Panels of keys whose odds wait for their values. */
struct group {
    size_t first, count;
};

struct walk {
    struct group filling, met;
    float *held;   /* where the sums belong that the tiles hold */
    size_t width;  /* from which on `met` meets values */
    size_t groups; /* panels of a group */
};

static inline float *scores_of(const struct pass *p, size_t key)
{
    return p->scores + key % 2 * SUMS;
}
static inline char *odds_of(const struct pass *p, size_t key)
{
    return p->odds + key % RING * STEP;
}

/* sums += left x right, over one step. */
static inline void multiply(const char *left, const char *right)
{
    TILE_STREAM(4, left, 64);
    TILE_LOAD(6, right, 64);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(7, right + 1024, 64);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

/* What the tiles hold to where it belongs; the next to store it has it for nothing. */
static inline void put_held(const struct pass *p, struct walk *w)
{
    TILE_STORE(0, w->held, LINE);
    TILE_STORE(1, w->held + 16, LINE);
    TILE_STORE(2, w->held + LOWER, LINE);
    TILE_STORE(3, w->held + LOWER + 16, LINE);
    w->held = p->scores + 2 * SUMS;
}

/* The first step of other sums: those that the tiles hold go to `to`, each as late as it may. */
static inline void multiply_first(const char *left, const char *right, float *to)
{
    TILE_STREAM(4, left, 64);
    TILE_LOAD(6, right, 64);
    TILE_STORE(0, to, LINE);
    TILE_ZERO(0);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(7, right + 1024, 64);
    TILE_STORE(1, to + 16, LINE);
    TILE_ZERO(1);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_STORE(2, to + LOWER, LINE);
    TILE_ZERO(2);
    TILE_DOT(2, 5, 6);
    TILE_STORE(3, to + LOWER + 16, LINE);
    TILE_ZERO(3);
    TILE_DOT(3, 5, 7);
}

/* The same, where the sums go on from those at `from`. */
static inline void multiply_again(const char *left, const char *right, float *to, const float *from)
{
    TILE_STREAM(4, left, 64);
    TILE_LOAD(6, right, 64);
    TILE_STORE(0, to, LINE);
    TILE_LOAD(0, from, LINE);
    TILE_DOT(0, 4, 6);
    TILE_LOAD(7, right + 1024, 64);
    TILE_STORE(1, to + 16, LINE);
    TILE_LOAD(1, from + 16, LINE);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_STORE(2, to + LOWER, LINE);
    TILE_LOAD(2, from + LOWER, LINE);
    TILE_DOT(2, 5, 6);
    TILE_STORE(3, to + LOWER + 16, LINE);
    TILE_LOAD(3, from + LOWER + 16, LINE);
    TILE_DOT(3, 5, 7);
}

/* One step of the scores of a panel of keys. */
static inline void multiply_keys(const struct pass *p, struct walk *w, size_t key, size_t step)
{
    const char *left = p->left + (key * p->widths + step) * STEP;
    const char *right = p->queries + step * STEP;
    if (step) {
        multiply(left, right);
        return;
    }
    multiply_first(left, right, w->held);
    w->held = scores_of(p, key);
}

/* One step of what a group of keys adds to 32 of K of out. */
static inline void multiply_values(const struct pass *p, struct walk *w, struct group g,
                                   size_t width, size_t step)
{
    size_t key = g.first + step;
    const char *left = p->values + (width * p->keys + key) * STEP, *right = odds_of(p, key);
    float *out = p->out + width * SUMS;
    if (step) {
        multiply(left, right);
        return;
    }
    multiply_again(left, right, w->held, out);
    w->held = out;
}

static void finish(const struct pass *p, struct walk *w, struct group g, size_t width)
{
    for (; width < p->widths; width++)
        for (size_t i = 0; i < g.count; i++) multiply_values(p, w, g, width, i);
}

/* All odds so far meet their values; the group that is filled begins anew. */
static void settle(const struct pass *p, struct walk *w)
{
    finish(p, w, w->met, w->width);
    finish(p, w, w->filling, 0);
    put_held(p, w);
    w->met = (struct group){0};
    w->filling = (struct group){w->filling.first + w->filling.count, 0};
}

/* Tops that are whole numbers from this panel's largest scores on, where those are larger; what has
 * been summed is made relative to them. */
static void raise_top(struct pass *p, const float *scores, bool any)
{
    float top[PANEL], keep[PANEL];
    memcpy(top, scores, sizeof top);
    for (size_t k = 1; k < PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            top[i] = scores[k * PANEL + i] > top[i] ? scores[k * PANEL + i] : top[i];
    for (size_t i = 0; i < PANEL; i++) {
        top[i] = ceilf(top[i] * p->factor);
        if (!(top[i] > p->top[i])) top[i] = p->top[i];
    }
    for (size_t i = 0; any && i < PANEL; i++) p->sum[i] *= keep[i] = exp2f(p->top[i] - top[i]);
    memcpy(p->top, top, sizeof top);
    for (size_t k = 0; any && k < p->widths * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) p->out[k * PANEL + i] *= keep[i];
}

static struct softening begin(const struct pass *p)
{
    float base[PANEL];
    for (size_t i = 0; i < PANEL; i++) base[i] = SOFTEN_BASE - p->top[i];
    return soften_begin(p->factor, base);
}

/* The panel's odds again, once the tops are high enough; what is still beyond is not a number. */
static uint32_t soften_again(struct pass *p, size_t key, bool any, float *sum)
{
    float *scores = scores_of(p, key);
    raise_top(p, scores, any);
    struct softening s = begin(p);
    for (size_t k = 0; k < PAIRS_EACH; k++)
        soften_keys(&s, scores + 2 * k * PANEL, odds_of(p, key) + k * 64);
    return soften_end(&s, sum);
}

/* The odds of a panel of keys, while the next one's scores and values of others are multiplied. */
static void step(struct pass *p, struct walk *w, size_t key, bool next)
{
    size_t share = 0, pieces = next ? p->widths : 0, done = 0;
    if (w->met.count && w->width < p->widths) {
        size_t until = ((w->filling.count + 1) * p->widths + w->groups - 1) / w->groups;
        share = (until < p->widths ? until : p->widths) - w->width;
    }
    size_t all = pieces + share * w->met.count, width = w->width, i = 0;
    const float *scores = scores_of(p, key);
    char *odds = odds_of(p, key);
    struct softening s = begin(p);
    for (size_t n = 0; n < all; n++) {
        if (n < pieces) {
            multiply_keys(p, w, key + 1, n);
        } else {
            multiply_values(p, w, w->met, width, i);
            if (++i == w->met.count) i = 0, width++;
        }
        for (; done < PAIRS_EACH * (n + 1) / all; done++)
            soften_keys(&s, scores + 2 * done * PANEL, odds + done * 64);
    }
    for (; done < PAIRS_EACH; done++) soften_keys(&s, scores + 2 * done * PANEL, odds + done * 64);
    w->width = width;
    if (!share) put_held(p, w);
    float sum[PANEL];
    if (soften_end(&s, sum)) {
        settle(p, w);
        uint32_t beyond = soften_again(p, key, true, sum);
        for (int q = 0; q < PANEL; q++)
            if (beyond >> q & 1) sum[q] = NAN;
    }
    for (size_t q = 0; q < PANEL; q++) p->sum[q] += sum[q];
}

void KERNEL(attention_pass)(struct pass *p, const struct sight *s, size_t begin, size_t end)
{
    struct walk w = {.filling = {begin, 0}};
    w.groups = p->widths < 2 ? 2 : least(p->widths, PASS_GROUP);
    if (begin >= end) return;
    w.held = p->scores + 2 * SUMS;
    for (size_t n = 0; n < p->widths; n++) multiply_keys(p, &w, begin, n);
    put_held(p, &w);
    for (size_t key = begin; key < end; key++) {
        mask(s, key, scores_of(p, key));
        if (key == begin) raise_top(p, scores_of(p, key), false);
        step(p, &w, key, key + 1 < end);
        if (++w.filling.count < w.groups) continue;
        finish(p, &w, w.met, w.width);
        w.met = w.filling, w.width = 0;
        w.filling = (struct group){key + 1, 0};
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
