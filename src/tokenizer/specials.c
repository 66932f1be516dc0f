// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/specials.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

void specials_release(struct specials *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->all[i].text);
    free(s->all);
    *s = (struct specials){0};
}

void specials_add(struct specials *s, const char *text, int32_t id)
{
    if (s->count == s->room) {
        s->room = 2 * s->room + 8;
        s->all = heap_grow(s->all, s->room, sizeof *s->all);
    }
    s->all[s->count++] = (struct special){heap_string(text, strlen(text)), id};
}

void specials_add_own(struct specials *s, int32_t first)
{
    static const char *const names[SPECIALS_OWN] = {"<|begin_of_text|>", "<|end_of_text|>",
                                                    "<|mask|>"};
    for (int i = 0; i < SPECIALS_OWN; i++) specials_add(s, names[i], first + i);
}

static int by_id(const void *a, const void *b)
{
    const struct special *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void specials_sort(struct specials *s)
{
    if (s->count) qsort(s->all, s->count, sizeof *s->all, by_id);
}

int32_t specials_id(const struct specials *s, const char *text)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->all[i].text, text)) return s->all[i].id;
    return -1;
}

const char *specials_text(const struct specials *s, int32_t id)
{
    size_t least = 0, most = s->count;
    while (least < most) {
        size_t middle = least + (most - least) / 2;
        if (s->all[middle].id < id)
            least = middle + 1;
        else
            most = middle;
    }
    return least < s->count && s->all[least].id == id ? s->all[least].text : NULL;
}
