// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *heap(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) BUG("out of memory for a small table");
    return p;
}

void *heap_grow(void *old, size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) BUG("a table is larger than memory");
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) BUG("out of memory for a small table");
    return p;
}

char *heap_string(const char *string, size_t len)
{
    char *copy = heap(len + 1);
    memcpy(copy, string, len);
    return copy;
}

void text_release(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

void text_clear(struct text *t)
{
    t->len = 0;
    if (t->data) t->data[0] = 0;
}

void text_reserve(struct text *t, size_t more)
{
    size_t need;
    if (__builtin_add_overflow(t->len, more, &need) || __builtin_add_overflow(need, 1, &need))
        BUG("a text is larger than memory");
    if (need <= t->capacity) return;
    size_t grown = t->capacity + t->capacity / 2 + 64;
    t->capacity = need > grown ? need : grown;
    t->data = heap_grow(t->data, t->capacity, 1);
}

void text_add(struct text *t, const void *bytes, size_t len)
{
    text_reserve(t, len);
    if (len) memcpy(t->data + t->len, bytes, len);
    t->len += len;
    t->data[t->len] = 0;
}

void text_adds(struct text *t, const char *string) { text_add(t, string, strlen(string)); }

void text_addv(struct text *t, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    BUG_IF(n < 0);
    text_reserve(t, (size_t)n);
    vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
    va_end(again);
    t->len += (size_t)n;
}

void text_addf(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_addv(t, fmt, ap);
    va_end(ap);
}

enum { DISTANCE_MOST = 127 };

/* `most` where it is no less; each row of the table has a cell that is on the way to the last. */
static size_t distance_below(const char *a, const char *b, size_t most)
{
    size_t row[DISTANCE_MOST + 1], la = strlen(a), lb = strlen(b);
    if (la > DISTANCE_MOST || lb > DISTANCE_MOST) return most;
    if ((la > lb ? la - lb : lb - la) >= most) return most;
    for (size_t j = 0; j <= lb; j++) row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0], least = i;
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            if (best < least) least = best;
        }
        if (least >= most) return most;
    }
    return row[lb] < most ? row[lb] : most;
}

size_t text_distance(const char *a, const char *b) { return distance_below(a, b, DISTANCE_MOST); }

bool text_is_nearer(const char *name, const char *word, size_t *best)
{
    size_t distance = distance_below(name, word, *best);
    bool nearer = distance < *best;
    *best = distance;
    return nearer;
}
