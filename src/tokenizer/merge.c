// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge.h"

#include "base/text.h"

#include <stdlib.h>

enum { MAX_SCANNED = 96 }; /* up to this many symbols, scanning is faster than a heap */

struct symbol {
    int32_t id;
    int32_t previous, next; /* -1: none */
    int32_t rank, merged;   /* of the pair with the next symbol; rank INT32_MAX: no merge */
};

void merger_release(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    free(m->ids);
    *m = (struct merger){0};
}

static int32_t pair_rank(const struct vocabulary *v, int32_t left, int32_t right, int32_t *merged)
{
    const struct merge_pair *p = vocabulary_find_pair(v, left, right);
    if (!p) return INT32_MAX;
    *merged = p->merged;
    return p->rank;
}

/* Overwrites `ids`. */
static void merge_by_scanning(const struct vocabulary *v, int32_t *ids, size_t n,
                              struct token_list *out)
{
    int32_t ranks[MAX_SCANNED], merged[MAX_SCANNED];
    for (size_t i = 0; i + 1 < n; i++) ranks[i] = pair_rank(v, ids[i], ids[i + 1], &merged[i]);
    for (;;) {
        size_t best = 0;
        int32_t lowest = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (ranks[i] < lowest) lowest = ranks[i], best = i;
        if (lowest == INT32_MAX) break;
        ids[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1], merged[i] = merged[i + 1];
        }
        if (best + 1 < n) ranks[best] = pair_rank(v, ids[best], ids[best + 1], &merged[best]);
        if (best > 0) ranks[best - 1] = pair_rank(v, ids[best - 1], ids[best], &merged[best - 1]);
    }
    for (size_t i = 0; i < n; i++) out->ids[out->count++] = ids[i];
}

/* A heap key is a merge's rank in the upper half and its position in the lower half; it is stale if
 * the symbol's rank has changed since.  A 4-ary heap is half as deep as a binary one, which matters
 * once it exceeds the cache. */
enum { ARITY = 4 };

static void heap_push(uint64_t *keys, size_t *count, uint64_t key)
{
    size_t i = (*count)++;
    for (; i > 0 && key < keys[(i - 1) / ARITY]; i = (i - 1) / ARITY)
        keys[i] = keys[(i - 1) / ARITY];
    keys[i] = key;
}

static uint64_t heap_pop(uint64_t *keys, size_t *count)
{
    uint64_t top = keys[0], key = keys[--*count];
    size_t i = 0;
    for (size_t first = 1; first < *count; first = ARITY * i + 1) {
        size_t lowest = first, end = first + ARITY < *count ? first + ARITY : *count;
        for (size_t k = first + 1; k < end; k++)
            if (keys[k] < keys[lowest]) lowest = k;
        if (keys[lowest] >= key) break;
        keys[i] = keys[lowest];
        i = lowest;
    }
    keys[i] = key;
    return top;
}

static void queue_pair(struct merger *m, const struct vocabulary *v, int32_t at, size_t *count)
{
    if (at < 0) return;
    struct symbol *s = &m->symbols[at];
    s->rank = s->next < 0 ? INT32_MAX : pair_rank(v, s->id, m->symbols[s->next].id, &s->merged);
    if (s->rank != INT32_MAX) heap_push(m->heap, count, (uint64_t)s->rank << 32 | (uint32_t)at);
}

static void merge_with_heap(struct merger *m, const struct vocabulary *v, const int32_t *ids,
                            size_t len, struct token_list *out)
{
    size_t count = 0;
    if (m->symbols_capacity < len) {
        m->symbols = heap_grow(m->symbols, len, sizeof *m->symbols);
        m->symbols_capacity = len;
    }
    if (m->heap_capacity < 3 * len) { /* one key for each symbol, two more for each merge */
        m->heap = heap_grow(m->heap, 3 * len, sizeof *m->heap);
        m->heap_capacity = 3 * len;
    }
    for (size_t i = 0; i < len; i++)
        m->symbols[i] = (struct symbol){
            .id = ids[i], .previous = (int32_t)i - 1, .next = i + 1 < len ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < len; i++) queue_pair(m, v, (int32_t)i, &count);
    while (count) {
        uint64_t key = heap_pop(m->heap, &count);
        int32_t at = (int32_t)(key & INT32_MAX);
        struct symbol *left = &m->symbols[at];
        if (left->rank != (int32_t)(key >> 32)) continue; /* stale */
        struct symbol *right = &m->symbols[left->next];
        left->id = left->merged;
        left->next = right->next;
        if (right->next >= 0) m->symbols[right->next].previous = at;
        right->rank = INT32_MAX;
        queue_pair(m, v, at, &count);
        queue_pair(m, v, left->previous, &count);
    }
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next) out->ids[out->count++] = m->symbols[i].id;
}

int32_t *merger_reserve(struct merger *m, size_t count)
{
    if (m->ids_capacity < count) {
        m->ids = heap_grow(m->ids, count, sizeof *m->ids);
        m->ids_capacity = count;
    }
    return m->ids;
}

void merger_merge(struct merger *m, const struct vocabulary *v, int32_t *ids, size_t count,
                  struct token_list *out)
{
    token_list_reserve(out, count);
    if (count <= MAX_SCANNED)
        merge_by_scanning(v, ids, count, out);
    else
        merge_with_heap(m, v, ids, count, out);
}

void merger_encode(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                   size_t len, struct token_list *out)
{
    int32_t small[MAX_SCANNED], *ids = len <= MAX_SCANNED ? small : merger_reserve(m, len);
    size_t count = len;
    for (size_t i = 0; i < len; i++) ids[i] = v->byte_ids[piece[i]];
    if (v->lacks_bytes) count = token_list_drop_missing(ids, len);
    merger_merge(m, v, ids, count, out);
}
