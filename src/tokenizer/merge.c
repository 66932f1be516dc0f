// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge.h"

#include "base/text.h"

#include <stdlib.h>

enum { SHORT = 96 }; /* symbols up to which scanning is faster */

struct symbol {
    int32_t id;             /* -1: merged away */
    int32_t previous, next; /* -1: none */
};

/* A merge that was possible when it was pushed. */
struct candidate_pair {
    int32_t rank, at, left, right;
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

static bool before(const struct candidate_pair *a, const struct candidate_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct candidate_pair *heap_, size_t *count, struct candidate_pair x)
{
    size_t i = (*count)++;
    for (; i > 0 && before(&x, &heap_[(i - 1) / 2]); i = (i - 1) / 2) heap_[i] = heap_[(i - 1) / 2];
    heap_[i] = x;
}

static struct candidate_pair pop(struct candidate_pair *heap_, size_t *count)
{
    struct candidate_pair top = heap_[0], x = heap_[--*count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *count) break;
        if (child + 1 < *count && before(&heap_[child + 1], &heap_[child])) child++;
        if (!before(&heap_[child], &x)) break;
        heap_[i] = heap_[child];
        i = child;
    }
    heap_[i] = x;
    return top;
}

static void consider(struct merger *m, const struct vocabulary *v, int32_t at, size_t *count)
{
    int32_t joined, next = at < 0 ? -1 : m->symbols[at].next;
    if (next < 0) return;
    struct candidate_pair c = {0, at, m->symbols[at].id, m->symbols[next].id};
    c.rank = rank_of(v, c.left, c.right, &joined);
    if (c.rank != INT32_MAX) push(m->heap, count, c);
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
        m->symbols[i] = (struct symbol){ids[i], (int32_t)i - 1, i + 1 < len ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i + 1 < len; i++) consider(m, v, (int32_t)i, &count);
    while (count) {
        struct candidate_pair c = pop(m->heap, &count);
        struct symbol *left = &m->symbols[c.at];
        if (left->id != c.left || left->next < 0 || m->symbols[left->next].id != c.right) continue;
        struct symbol *right = &m->symbols[left->next];
        left->id = vocabulary_pair(v, c.left, c.right)->joined;
        left->next = right->next;
        if (right->next >= 0) m->symbols[right->next].previous = c.at;
        right->id = -1;
        consider(m, v, c.at, &count);
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
