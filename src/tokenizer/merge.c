// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge.h"

#include "base/text.h"

#include <stdlib.h>

enum { SHORT = 96 }; /* symbols up to which scanning is faster */

struct symbol {
    int32_t id;
    int32_t previous, next; /* -1: none */
    int32_t rank, joined;   /* of its pair with the next; INT32_MAX: none */
};

void merger_release(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    free(m->ids);
    *m = (struct merger){0};
}

static int32_t rank_of(const struct vocabulary *v, int32_t left, int32_t right, int32_t *joined)
{
    const struct pair *p = vocabulary_pair(v, left, right);
    if (!p) return INT32_MAX;
    *joined = p->joined;
    return p->rank;
}

/* `ids` is overwritten. */
static void join_short(const struct vocabulary *v, int32_t *ids, size_t n, struct token_list *out)
{
    int32_t ranks[SHORT], joined[SHORT];
    for (size_t i = 0; i + 1 < n; i++) ranks[i] = rank_of(v, ids[i], ids[i + 1], &joined[i]);
    for (;;) {
        size_t best = 0;
        int32_t least = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (ranks[i] < least) least = ranks[i], best = i;
        if (least == INT32_MAX) break;
        ids[best] = joined[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1], joined[i] = joined[i + 1];
        }
        if (best + 1 < n) ranks[best] = rank_of(v, ids[best], ids[best + 1], &joined[best]);
        if (best > 0) ranks[best - 1] = rank_of(v, ids[best - 1], ids[best], &joined[best - 1]);
    }
    for (size_t i = 0; i < n; i++) out->ids[out->count++] = ids[i];
}

/* A merge that was possible when it was pushed: its rank, and below it the place.  Four children a
 * node: the heap of a long piece is larger than a cache, and so half as deep. */
enum { CHILDREN = 4 };

static void push(uint64_t *heap_, size_t *count, uint64_t key)
{
    size_t i = (*count)++;
    for (; i > 0 && key < heap_[(i - 1) / CHILDREN]; i = (i - 1) / CHILDREN)
        heap_[i] = heap_[(i - 1) / CHILDREN];
    heap_[i] = key;
}

static uint64_t pop(uint64_t *heap_, size_t *count)
{
    uint64_t top = heap_[0], key = heap_[--*count];
    size_t i = 0;
    for (size_t first = 1; first < *count; first = CHILDREN * i + 1) {
        size_t least = first, end = first + CHILDREN < *count ? first + CHILDREN : *count;
        for (size_t k = first + 1; k < end; k++)
            if (heap_[k] < heap_[least]) least = k;
        if (heap_[least] >= key) break;
        heap_[i] = heap_[least];
        i = least;
    }
    heap_[i] = key;
    return top;
}

static void consider(struct merger *m, const struct vocabulary *v, int32_t at, size_t *count)
{
    if (at < 0) return;
    struct symbol *s = &m->symbols[at];
    s->rank = s->next < 0 ? INT32_MAX : rank_of(v, s->id, m->symbols[s->next].id, &s->joined);
    if (s->rank != INT32_MAX) push(m->heap, count, (uint64_t)s->rank << 32 | (uint32_t)at);
}

static void join_long(struct merger *m, const struct vocabulary *v, const int32_t *ids, size_t len,
                      struct token_list *out)
{
    size_t count = 0;
    if (m->num_symbols < len) {
        m->symbols = heap_grow(m->symbols, len, sizeof *m->symbols);
        m->num_symbols = len;
    }
    if (m->num_heap < 3 * len) { /* a pair for each symbol, two more for each merge */
        m->heap = heap_grow(m->heap, 3 * len, sizeof *m->heap);
        m->num_heap = 3 * len;
    }
    for (size_t i = 0; i < len; i++)
        m->symbols[i] = (struct symbol){
            .id = ids[i], .previous = (int32_t)i - 1, .next = i + 1 < len ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < len; i++) consider(m, v, (int32_t)i, &count);
    while (count) {
        uint64_t key = pop(m->heap, &count);
        int32_t at = (int32_t)(key & INT32_MAX);
        struct symbol *left = &m->symbols[at];
        if (left->rank != (int32_t)(key >> 32)) continue; /* merged since */
        struct symbol *right = &m->symbols[left->next];
        left->id = left->joined;
        left->next = right->next;
        if (right->next >= 0) m->symbols[right->next].previous = at;
        right->rank = INT32_MAX;
        consider(m, v, at, &count);
        consider(m, v, left->previous, &count);
    }
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next) out->ids[out->count++] = m->symbols[i].id;
}

int32_t *merger_symbols(struct merger *m, size_t count)
{
    if (m->num_ids < count) {
        m->ids = heap_grow(m->ids, count, sizeof *m->ids);
        m->num_ids = count;
    }
    return m->ids;
}

void merger_join(struct merger *m, const struct vocabulary *v, int32_t *ids, size_t count,
                 struct token_list *out)
{
    token_list_reserve(out, count);
    if (count <= SHORT)
        join_short(v, ids, count, out);
    else
        join_long(m, v, ids, count, out);
}

void merger_encode(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                   size_t len, struct token_list *out)
{
    int32_t few[SHORT], *ids = len <= SHORT ? few : merger_symbols(m, len);
    for (size_t i = 0; i < len; i++) ids[i] = v->of_byte[piece[i]];
    merger_join(m, v, ids, len, out);
}
