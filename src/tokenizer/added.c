// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added.h"

#include "base/text.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

void added_release(struct added *a)
{
    for (int i = 0; i < ADDED_STAGES; i++) matcher_release(&a->stages[i]);
    free(a->tokens);
    *a = (struct added){0};
}

enum status added_put(struct added *a, int stage, const char *text, struct added_token token)
{
    TRY(matcher_add(&a->stages[stage], text, strlen(text), a->count));
    a->tokens = heap_grow(a->tokens, (size_t)a->count + 1, sizeof *a->tokens);
    a->tokens[a->count++] = token;
    a->finds |= !token.special;
    return STATUS_OK;
}

/* Is there a character of a word at the end of text[0..at), or at its beginning? */
static bool word_before(const unsigned char *text, size_t at)
{
    size_t back = 1;
    int size;
    if (!at) return false;
    while (back < 4 && back < at && (text[at - back] & 0xC0) == 0x80) back++;
    uint32_t code = unicode_decode(text + at - back, back, &size);
    return (size_t)size == back && (size > 1 || code < 0x80) && unicode_is(code, UNICODE_WORD);
}

static bool word_after(const unsigned char *text, size_t len)
{
    int size;
    if (!len) return false;
    uint32_t code = unicode_decode(text, len, &size);
    return (size > 1 || code < 0x80) && unicode_is(code, UNICODE_WORD);
}

static size_t spaces_before(const unsigned char *text, size_t at)
{
    while (at > 0) {
        size_t back = 1;
        int size;
        while (back < 4 && back < at && (text[at - back] & 0xC0) == 0x80) back++;
        if (unicode_next(text + at - back, back, &size) != UNICODE_SPACE || (size_t)size != back)
            break;
        at -= back;
    }
    return at;
}

static size_t spaces_after(const unsigned char *text, size_t len, size_t at)
{
    int size;
    while (at < len && unicode_next(text + at, len - at, &size) == UNICODE_SPACE)
        at += (size_t)size;
    return at;
}

bool added_next(const struct added *a, int stage, const unsigned char *text, size_t len, size_t *at,
                size_t done, struct added_match *out)
{
    const struct matcher *m = &a->stages[stage];
    while (*at < len) {
        size_t size = 0, begin = *at;
        int32_t index =
            matcher_may(m, text[begin]) ? matcher_find(m, text + begin, len - begin, &size) : -1;
        *at += index < 0 ? 1 : size;
        if (index < 0 || a->tokens[index].special) continue;
        const struct added_token *t = &a->tokens[index];
        if (t->single_word &&
            (word_before(text, begin) || word_after(text + begin + size, len - begin - size)))
            continue;
        *out = (struct added_match){t->id, begin, begin + size};
        if (t->lstrip) out->begin = spaces_before(text, begin);
        if (out->begin < done) out->begin = done;
        if (t->rstrip) out->end = spaces_after(text, len, out->end);
        return true;
    }
    return false;
}
