// SPDX-License-Identifier: Apache-2.0
#include "data/ngram.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

struct slot {
    uint64_t key, count; /* of none: 0 */
};

/* Open addressing, at most half full. */
struct counts {
    struct slot *slots;
    size_t used, room;
};

struct ngram {
    int n;
    int64_t vocab_size;
    struct counts grams, contexts;
};

struct ngram *ngram_make(int n, int64_t vocab_size)
{
    struct ngram *g = heap(sizeof *g);
    *g = (struct ngram){.n = n, .vocab_size = vocab_size};
    return g;
}

void ngram_free(struct ngram *g)
{
    if (!g) return;
    free(g->grams.slots);
    free(g->contexts.slots);
    free(g);
}

/* SplitMix64's finalizer (Steele et al. 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t key_of(const int32_t *ids, int n)
{
    uint64_t key = 1;
    for (int i = 0; i < n; i++) key = mix(key + 0x9E3779B97F4A7C15u + (uint64_t)ids[i]);
    return key ? key : 1;
}

/* Where the key is, or would be. */
static struct slot *place_of(const struct counts *c, uint64_t key)
{
    size_t at = (size_t)key & (c->room - 1);
    while (c->slots[at].key && c->slots[at].key != key) at = (at + 1) & (c->room - 1);
    return &c->slots[at];
}

static uint64_t count_of(const struct counts *c, uint64_t key)
{
    return c->room ? place_of(c, key)->count : 0;
}

static void grow(struct counts *c)
{
    struct counts wider = {.room = c->room ? 2 * c->room : 1 << 12};
    wider.slots = heap(wider.room * sizeof *wider.slots);
    for (size_t i = 0; i < c->room; i++)
        if (c->slots[i].key) *place_of(&wider, c->slots[i].key) = c->slots[i];
    wider.used = c->used;
    free(c->slots);
    *c = wider;
}

static void add(struct counts *c, uint64_t key)
{
    if (2 * c->used >= c->room) grow(c);
    struct slot *s = place_of(c, key);
    c->used += !s->key;
    s->key = key;
    s->count++;
}

void ngram_learn(struct ngram *g, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i + (size_t)g->n <= count; i++) {
        add(&g->grams, key_of(ids + i, g->n));
        add(&g->contexts, key_of(ids + i, g->n - 1));
    }
}

void ngram_measure(const struct ngram *g, const int32_t *ids, size_t count, struct ngram_score *s)
{
    for (size_t i = 0; i + (size_t)g->n <= count; i++) {
        double here = (double)count_of(&g->grams, key_of(ids + i, g->n));
        double all = (double)count_of(&g->contexts, key_of(ids + i, g->n - 1));
        s->loss_sum -= log((here + 1) / (all + (double)g->vocab_size));
        s->tokens++;
    }
}
