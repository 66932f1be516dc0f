// SPDX-License-Identifier: Apache-2.0
#include "data/token_spans.h"

#include "base/heap.h"

#include <stdlib.h>

static bool continues(const struct token_span *a, const struct token_span *b)
{
    return a->source == b->source && a->file == b->file && a->at == b->at &&
           a->is_skipped == b->is_skipped && a->begin + a->count == b->begin &&
           a->first + (uint64_t)a->count == b->first;
}

void token_spans_add(struct token_spans *s, const struct token_span *span)
{
    if (!span->count) return;
    if (s->count && continues(&s->items[s->count - 1], span)) {
        s->items[s->count - 1].count += span->count;
        return;
    }
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 8;
        s->items = heap_grow(s->items, s->capacity, sizeof *s->items);
    }
    s->items[s->count++] = *span;
}

void token_spans_release(struct token_spans *s)
{
    free(s->items);
    *s = (struct token_spans){0};
}
