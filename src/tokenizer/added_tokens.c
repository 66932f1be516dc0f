// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include "base/text.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

void added_tokens_release(struct added_tokens *a)
{
    for (int i = 0; i < ADDED_TOKENS_STAGES; i++) matcher_release(&a->stages[i]);
    free(a->tokens);
    *a = (struct added_tokens){0};
}

enum status added_tokens_add(struct added_tokens *a, int stage, const char *text,
                             struct added_token token)
{
    size_t len = strlen(text);
    int32_t before = len ? vocabulary_find(&a->stages[stage].strings, text, len) : -1;
    if (before >= 0) { /* of tokens with one text, special ones come first */
        if (token.special && !a->tokens[before].special) a->tokens[before] = token;
        a->matches_text = false;
        for (int32_t i = 0; i < a->count; i++) a->matches_text |= !a->tokens[i].special;
        return STATUS_OK;
    }
    TRY(matcher_add(&a->stages[stage], text, len, a->count));
    a->tokens = heap_grow(a->tokens, (size_t)a->count + 1, sizeof *a->tokens);
    a->tokens[a->count++] = token;
    a->matches_text |= !token.special;
    return STATUS_OK;
}

/* Whether text[0..at) ends in a word character. */
static bool ends_in_word_char(const unsigned char *text, size_t at)
{
    size_t back = 1;
    int size;
    if (!at) return false;
    while (back < 4 && back < at && (text[at - back] & 0xC0) == 0x80) back++;
    uint32_t code = unicode_decode(text + at - back, back, &size);
    return (size_t)size == back && (size > 1 || code < 0x80) &&
           unicode_has_mark(code, UNICODE_WORD);
}

static bool starts_with_word_char(const unsigned char *text, size_t len)
{
    int size;
    if (!len) return false;
    uint32_t code = unicode_decode(text, len, &size);
    return (size > 1 || code < 0x80) && unicode_has_mark(code, UNICODE_WORD);
}

static size_t skip_spaces_backward(const unsigned char *text, size_t at)
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

static size_t skip_spaces(const unsigned char *text, size_t len, size_t at)
{
    int size;
    while (at < len && unicode_next(text + at, len - at, &size) == UNICODE_SPACE)
        at += (size_t)size;
    return at;
}

bool added_tokens_next(struct added_scan *s, struct added_match *out)
{
    const struct matcher *m = &s->tokens->stages[s->stage];
    const unsigned char *text = s->text;
    size_t len = s->len;
    while (s->at < len) {
        size_t size = 0, begin = s->at;
        int32_t index = matcher_may_start(m, text[begin])
                            ? matcher_find(m, text + begin, len - begin, &size)
                            : -1;
        s->at += index < 0 ? 1 : size;
        if (index < 0 || s->tokens->tokens[index].special) continue;
        const struct added_token *t = &s->tokens->tokens[index];
        if (t->single_word && (ends_in_word_char(text, begin) ||
                               starts_with_word_char(text + begin + size, len - begin - size)))
            continue;
        *out = (struct added_match){t->id, begin, begin + size};
        if (t->lstrip) out->begin = skip_spaces_backward(text, begin);
        if (out->begin < s->done) out->begin = s->done;
        if (t->rstrip) out->end = skip_spaces(text, len, out->end);
        if (t->lstrip && out->begin >= out->end) continue; /* spaces of the match before it */
        s->done = out->end;
        return true;
    }
    return false;
}
