// SPDX-License-Identifier: Apache-2.0
#include "infer/ngram.h"

#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>

struct ngram_slot {
    uint64_t key, count; /* key 0: empty */
};

/* A hash table with open addressing, at most half full. */
struct ngram_table {
    struct ngram_slot *slots;
    size_t used, capacity;
};

struct ngram {
    int n;
    int64_t vocab_size;
    struct ngram_table grams, contexts;
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

static uint64_t hash_ids(const int32_t *ids, int n)
{
    uint64_t key = 1;
    for (int i = 0; i < n; i++) key = rng_mix(key + (uint64_t)ids[i]);
    return key ? key : 1;
}

/* The key's slot, or the empty one where it would go. */
static struct ngram_slot *find_slot(const struct ngram_table *c, uint64_t key)
{
    size_t at = (size_t)key & (c->capacity - 1);
    while (c->slots[at].key && c->slots[at].key != key) at = (at + 1) & (c->capacity - 1);
    return &c->slots[at];
}

static uint64_t count_of(const struct ngram_table *c, uint64_t key)
{
    return c->capacity ? find_slot(c, key)->count : 0;
}

static void grow_table(struct ngram_table *c)
{
    struct ngram_table wider = {.capacity = c->capacity ? 2 * c->capacity : 1 << 12};
    wider.slots = heap(wider.capacity * sizeof *wider.slots);
    for (size_t i = 0; i < c->capacity; i++)
        if (c->slots[i].key) *find_slot(&wider, c->slots[i].key) = c->slots[i];
    wider.used = c->used;
    free(c->slots);
    *c = wider;
}

static void count_key(struct ngram_table *c, uint64_t key)
{
    if (2 * c->used >= c->capacity) grow_table(c);
    struct ngram_slot *s = find_slot(c, key);
    c->used += !s->key;
    s->key = key;
    s->count++;
}

void ngram_learn(struct ngram *g, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i + (size_t)g->n <= count; i++) {
        count_key(&g->grams, hash_ids(ids + i, g->n));
        count_key(&g->contexts, hash_ids(ids + i, g->n - 1));
    }
}

void ngram_measure(const struct ngram *g, const int32_t *ids, size_t count, struct ngram_score *s)
{
    for (size_t i = 0; i + (size_t)g->n <= count; i++) {
        double here = (double)count_of(&g->grams, hash_ids(ids + i, g->n));
        double all = (double)count_of(&g->contexts, hash_ids(ids + i, g->n - 1));
        s->loss_sum -= log((here + 1) / (all + (double)g->vocab_size));
        s->tokens++;
    }
}
