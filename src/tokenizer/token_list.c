// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_list.h"

#include "base/text.h"

#include <stdlib.h>

void token_list_reserve(struct token_list *l, size_t more)
{
    if (l->count + more <= l->capacity) return;
    size_t grown = l->capacity + l->capacity / 2 + 64;
    l->capacity = l->count + more > grown ? l->count + more : grown;
    l->ids = heap_grow(l->ids, l->capacity, sizeof *l->ids);
}

void token_list_release(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

size_t token_list_drop_missing(int32_t *ids, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= 0) ids[kept++] = ids[i];
    return kept;
}
