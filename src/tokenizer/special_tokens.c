// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/special_tokens.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

void special_tokens_release(struct special_tokens *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->all[i].text);
    free(s->all);
    *s = (struct special_tokens){0};
}

void special_tokens_add(struct special_tokens *s, const char *text, int32_t id)
{
    if (s->count == s->capacity) {
        s->capacity = 2 * s->capacity + 8;
        s->all = heap_grow(s->all, s->capacity, sizeof *s->all);
    }
    s->all[s->count++] = (struct special_token){heap_strdup(text), id};
}

void special_tokens_add_default(struct special_tokens *s, int32_t first)
{
    static const char *const names[SPECIAL_TOKENS_DEFAULT] = {"<|begin_of_text|>",
                                                              "<|end_of_text|>", "<|mask|>"};
    for (int i = 0; i < SPECIAL_TOKENS_DEFAULT; i++) special_tokens_add(s, names[i], first + i);
}

static int by_id(const void *a, const void *b)
{
    const struct special_token *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void special_tokens_sort(struct special_tokens *s)
{
    if (s->count) qsort(s->all, s->count, sizeof *s->all, by_id);
}

int32_t special_tokens_find(const struct special_tokens *s, const char *text)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->all[i].text, text)) return s->all[i].id;
    return -1;
}

const char *special_tokens_text(const struct special_tokens *s, int32_t id)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->all[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count && s->all[low].id == id ? s->all[low].text : NULL;
}
