/* attention_back.c (cpu) -- see attention_back.h.
 *
 * While the odds of a panel of keys and one of queries are made, and what is to be added to their
 * gradients, the tiles multiply the next two panels' scores, and what the panel of keys before adds
 * to keys and values. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_back.h"

#include "backends/cpu/kernels/attention_soften.h"
#include "backends/cpu/kernels/attention_tiles.h"

#if defined(TILES)
enum { ROWS_EACH = PANEL / 2 };

/* A panel of keys, of whose queries `count` panels from `first` on see some; one of them.  Buffers
 * are used by turns: those of a pair of panels, and those of all of a panel of keys. */
struct place {
    size_t key, first, count, at;
    size_t turn, side;
};

struct walk {
    float *held;
    struct place waiting; /* keys whose odds have not been multiplied yet; count 0: none */
    size_t done;          /* products of theirs that have been */
    /* what scores and dodds of each query begin with */
    float scores[BACK_GROUP * PANEL], dodds[BACK_GROUP * PANEL] __attribute__((aligned(64)));
};

static inline size_t query_of(const struct place *x) { return x->first + x->at; }
static inline size_t sums_of(const struct place *x) { return x->turn * SUMS; }
static inline size_t left_of(const struct place *x, size_t query)
{
    return (x->side * BACK_GROUP + query) * STEP;
}
static inline size_t right_of(size_t key, size_t query)
{
    return (query * BACK_GROUP + key % BACK_GROUP) * STEP;
}

/* To the next panel of queries, of these or of later keys; false: there is none. */
static bool advance(const struct back *b, const struct sight *s, struct place *x)
{
    x->turn = !x->turn;
    if (++x->at < x->count) return true;
    x->side = !x->side;
    for (x->key++; x->key < b->keys; x->key++) {
        size_t first = 0, end = b->panels;
        while (first < end && !is_seen(&s[first], x->key)) first++;
        while (end > first && !is_seen(&s[end - 1], x->key)) end--;
        x->first = first, x->count = end - first, x->at = 0;
        if (x->count) return true;
    }
    return false;
}

static struct product scores_product(const struct back *b, const struct walk *w,
                                     const struct place *x)
{
    return (struct product){.left = b->left + x->key * b->widths * STEP,
                            .right = b->queries + query_of(x) * b->widths * STEP,
                            .left_step = STEP,
                            .right_step = STEP,
                            .steps = b->widths,
                            .from = w->scores + query_of(x) * PANEL,
                            .one_row = true,
                            .to = b->scores + sums_of(x)};
}

static struct product dodds_product(const struct back *b, const struct walk *w,
                                    const struct place *x)
{
    return (struct product){.left = b->values + x->key * b->widths * STEP,
                            .right = b->dout + query_of(x) * b->widths * STEP,
                            .left_step = STEP,
                            .right_step = STEP,
                            .steps = b->widths,
                            .from = w->dodds + query_of(x) * PANEL,
                            .one_row = true,
                            .to = b->dodds + sums_of(x)};
}

/* Product n of the 2 * widths of what a panel of keys is added. */
static struct product keys_product(const struct back *b, const struct place *x, size_t n)
{
    size_t width = n / 2, skip = (width * b->panels + x->first) * STEP;
    float *to = (n % 2 ? b->dkeys : b->dvalues) + (x->key * b->widths + width) * SUMS;
    return (struct product){.left = (n % 2 ? b->dscores : b->odds) + left_of(x, x->first),
                            .right = (n % 2 ? b->queries_split : b->dout_split) + skip,
                            .left_step = STEP,
                            .right_step = STEP,
                            .steps = x->count,
                            .from = to,
                            .to = to};
}

static void finish(const struct back *b, struct walk *w)
{
    for (; w->waiting.count && w->done < 2 * b->widths; w->done++) {
        struct product p = keys_product(b, &w->waiting, w->done);
        product_run(&p, &w->held);
    }
    w->waiting.count = 0, w->done = 0;
}

/* What the panels of queries are added by the group of panels of keys that ends with `key`. */
static void add_to_queries(const struct back *b, const struct sight *s, struct walk *w, size_t key)
{
    size_t group = key / BACK_GROUP * BACK_GROUP;
    for (size_t j = 0; j < b->panels; j++) {
        size_t first = group, end = key + 1;
        while (first < end && !is_seen(&s[j], first)) first++;
        while (end > first && !is_seen(&s[j], end - 1)) end--;
        for (size_t n = 0; first < end && n < b->widths; n++) {
            float *to = b->dqueries + (j * b->widths + n) * SUMS;
            struct product p = {.left = b->left_turned + (n * b->keys + first) * STEP,
                                .right = b->dscores_right + right_of(first, j),
                                .left_step = STEP,
                                .right_step = STEP,
                                .steps = end - first,
                                .from = to,
                                .to = to};
            product_run(&p, &w->held);
        }
    }
}

/* Where the odds of two panels come from and go to. */
struct softened {
    float factor;
    const float *scores, *dodds;
    char *odds, *dscores, *right;
};

static inline void soften_until(const struct softened *s, size_t *done, size_t until)
{
    for (size_t k = *done; k < until; k++) {
        size_t row = k / 8 * 1024 + k % 8 * 128;
        soften_keys_back(s->factor, s->scores + 2 * k * PANEL, s->dodds + 2 * k * PANEL,
                         s->odds + row, s->dscores + row, s->right + k * 64);
    }
    *done = until;
}

/* The odds at x; beside them products, of which the first two are those of `next`. */
static void step(const struct back *b, struct walk *w, const struct place *x,
                 const struct place *next)
{
    size_t until = w->waiting.count ? (2 * b->widths * (x->at + 1) + x->count - 1) / x->count : 0;
    size_t all = next ? 2 * b->widths : 0, made = 0, done = 0, query = query_of(x);
    all += until > w->done ? (until - w->done) * w->waiting.count : 0;
    struct softened s = {
        .factor = b->scale * 1.44269504f,
        .scores = b->scores + sums_of(x),
        .dodds = b->dodds + sums_of(x),
        .odds = b->odds + left_of(x, query),
        .dscores = b->dscores + left_of(x, query),
        .right = b->dscores_right + right_of(x->key, query),
    };
    for (size_t n = next ? 0 : 2; n < 2 || w->done < until; n++) {
        struct product p = n == 0   ? scores_product(b, w, next)
                           : n == 1 ? dodds_product(b, w, next)
                                    : keys_product(b, &w->waiting, w->done++);
        for (size_t i = 0; i < p.steps; i++) {
            product_step(&p, i, &w->held);
            soften_until(&s, &done, ROWS_EACH * ++made / all);
        }
    }
    soften_until(&s, &done, ROWS_EACH);
    product_end(&w->held, b->scores + 2 * SUMS);
}

void KERNEL(attention_back)(struct back *b, const struct sight *sights)
{
    struct walk w = {.held = b->scores + 2 * SUMS};
    struct place x = {.key = (size_t)-1}, next;
    for (size_t i = 0; i < b->panels * PANEL; i++)
        w.scores[i] = -b->lse[i] / b->scale, w.dodds[i] = -b->delta[i];
    bool more = advance(b, sights, &x);
    if (!more) return;
    struct product first[] = {scores_product(b, &w, &x), dodds_product(b, &w, &x)};
    for (size_t n = 0; n < 2; n++) product_run(&first[n], &w.held);
    product_end(&w.held, b->scores + 2 * SUMS);
    for (; more; x = next) {
        next = x;
        more = advance(b, sights, &next);
        mask(&sights[query_of(&x)], x.key, b->scores + sums_of(&x));
        for (size_t i = 0; i < 3; i++) ahead_ask(&b->ahead[i], 4);
        step(b, &w, &x, more ? &next : NULL);
        if (more && next.key == x.key) continue;
        finish(b, &w);
        w.waiting = x;
        if (!more || next.key / BACK_GROUP != x.key / BACK_GROUP)
            add_to_queries(b, sights, &w, x.key);
    }
    finish(b, &w);
    product_end(&w.held, b->scores + 2 * SUMS);
}
#else
void KERNEL(attention_back)(struct back *b, const struct sight *sights)
{
    (void)b, (void)sights;
    BUG_IF(true);
}
#endif
