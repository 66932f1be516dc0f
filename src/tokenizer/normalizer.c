// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include "tokenizer/text/grapheme.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/text/unicode_letters.h"

#include <stdlib.h>
#include <string.h>

void normalizer_release(struct normalizer *n)
{
    for (size_t i = 0; i < n->count; i++) {
        regex_free(n->steps[i].regex);
        free(n->steps[i].string), free(n->steps[i].content);
        charsmap_release(&n->steps[i].charsmap);
    }
    *n = (struct normalizer){0};
}

void normalizer_scratch_init(struct normalizer_scratch *s, const struct normalizer *n)
{
    *s = (struct normalizer_scratch){.normalizer = n};
    for (size_t i = 0; i < n->count; i++)
        if (n->steps[i].regex) s->matches[i] = regex_match_make(n->steps[i].regex);
}

void normalizer_scratch_release(struct normalizer_scratch *s)
{
    for (size_t i = 0; i < NORMALIZER_MAX_STEPS; i++) regex_match_free(s->matches[i]);
    for (size_t i = 0; i < 2; i++) text_release(&s->texts[i]);
    *s = (struct normalizer_scratch){0};
}

/* Reads the character at text[*at] and moves *at behind it; -1: a byte that is not valid UTF-8. */
static int64_t next_char(const unsigned char *text, size_t len, size_t *at)
{
    int size;
    uint32_t code = unicode_decode(text + *at, len - *at, &size);
    bool invalid = size == 1 && text[*at] >= 0x80;
    *at += (size_t)size;
    return invalid ? -1 : (int64_t)code;
}

static void lower(const unsigned char *text, size_t len, struct text *out)
{
    for (size_t at = 0, begin; at < len;) {
        uint32_t codes[2];
        int64_t code = next_char(text, len, (begin = at, &at));
        int count = code < 0 ? 0 : unicode_letters_lower((uint32_t)code, codes);
        if (count == 1 && codes[0] == code) count = 0;
        for (int i = 0; i < count; i++) text_add_utf8(out, codes[i]);
        if (!count) text_add(out, text + begin, at - begin);
    }
}

/* Returns whether it removes the first character, as the next ones do. */
static bool strip_accents(const unsigned char *text, size_t len, struct text *out)
{
    bool drops = false;
    for (size_t at = 0, begin; at < len;) {
        int64_t code = next_char(text, len, (begin = at, &at));
        if (code < 0 || !unicode_letters_is_accent((uint32_t)code))
            text_add(out, text + begin, at - begin);
        else
            drops |= !begin;
    }
    return drops;
}

static bool is_nmt_control(int64_t code)
{
    return (code >= 1 && code <= 8) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
}

static bool is_nmt_space(int64_t code)
{
    return code == 9 || code == 10 || code == 12 || code == 13 || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
}

static bool map_nmt(const unsigned char *text, size_t len, struct text *out)
{
    bool drops = false;
    for (size_t at = 0, begin; at < len;) {
        int64_t code = next_char(text, len, (begin = at, &at));
        if (is_nmt_space(code))
            text_add(out, " ", 1);
        else if (!is_nmt_control(code))
            text_add(out, text + begin, at - begin);
        else
            drops |= !begin;
    }
    return drops;
}

/* Replacements in a malicious file could make each other longer without end. */
static enum status check_length(const struct normalizer_scratch *s, const struct text *out)
{
    if (out->len > s->max_len)
        FAIL(RECORD, "a text has over %zu bytes when normalized, which is far longer than before",
             s->max_len);
    return STATUS_OK;
}

/* As Hugging Face's library does, unlike SentencePiece: a grapheme cluster of less than 6 bytes
 * becomes the mapping of its shortest mapped prefix; otherwise each character is mapped by
 * itself. */
static enum status map_graphemes(struct normalizer_scratch *s, size_t index,
                                 const unsigned char *text, size_t len, struct text *out)
{
    const struct charsmap *map = &s->normalizer->steps[index].charsmap;
    enum { MAX_CLUSTER = 5 };
    for (size_t at = 0; at < len;) {
        TRY(check_length(s, out));
        size_t size = grapheme_next(text + at, len - at), end = at + size;
        const char *mapped =
            size <= MAX_CLUSTER ? charsmap_find_shortest(map, text + at, size) : NULL;
        if (mapped) {
            text_adds(out, mapped);
            at = end;
        }
        while (at < end) {
            size_t begin = at;
            next_char(text, end, &at);
            mapped = charsmap_find_shortest(map, text + begin, at - begin);
            if (mapped)
                text_adds(out, mapped);
            else
                text_add(out, text + begin, at - begin);
        }
    }
    return STATUS_OK;
}

static bool strip(const struct normalizer_step *step, const unsigned char *text, size_t len,
                  struct text *out)
{
    size_t begin = 0;
    int size;
    while (step->left && begin < len &&
           unicode_next(text + begin, len - begin, &size) == UNICODE_SPACE)
        begin += (size_t)size;
    while (step->right && len > begin) {
        size_t back = 1;
        while (back < 4 && begin + back < len && (text[len - back] & 0xC0) == 0x80) back++;
        if (unicode_next(text + len - back, back, &size) != UNICODE_SPACE || (size_t)size != back)
            break;
        len -= back;
    }
    text_add(out, text + begin, len - begin);
    return begin > 0;
}

/* memmem, but under ASan that takes time in proportion to the whole text for every match. */
static const unsigned char *find_string(const unsigned char *text, size_t len, const char *string,
                                        size_t string_len)
{
    return string_len == 1 ? memchr(text, string[0], len) : memmem(text, len, string, string_len);
}

static enum status replace(struct normalizer_scratch *s, size_t index, const unsigned char *text,
                           size_t len, struct text *out)
{
    const struct normalizer_step *step = &s->normalizer->steps[index];
    size_t string_len = step->string ? strlen(step->string) : 0;
    struct regex_span span = {0, 0};
    for (size_t at = 0; at < len; at = span.end) {
        TRY(check_length(s, out));
        span = (struct regex_span){len, len};
        if (step->string) {
            const unsigned char *found = find_string(text + at, len - at, step->string, string_len);
            if (found) span.begin = (size_t)(found - text), span.end = span.begin + string_len;
        } else {
            TRY(regex_find(s->matches[index], text, len, at, &span));
        }
        text_add(out, text + at, span.begin - at);
        if (span.end > span.begin) text_adds(out, step->content);
        s->drops_start |= !span.begin && span.end && !step->content[0];
    }
    return STATUS_OK;
}

static enum status run_step(struct normalizer_scratch *s, size_t index, const unsigned char *text,
                            size_t len, struct text *out)
{
    const struct normalizer_step *step = &s->normalizer->steps[index];
    switch (step->kind) {
    case NORMALIZE_FORM: break; /* normalizer_run's */
    case NORMALIZE_LOWERCASE: lower(text, len, out); break;
    case NORMALIZE_STRIP_ACCENTS: s->drops_start |= strip_accents(text, len, out); break;
    case NORMALIZE_STRIP: s->drops_start |= strip(step, text, len, out); break;
    case NORMALIZE_REPLACE: return replace(s, index, text, len, out);
    case NORMALIZE_PREPEND:
        if (len) text_adds(out, step->content);
        text_add(out, text, len);
        break;
    case NORMALIZE_CHARSMAP: return map_graphemes(s, index, text, len, out);
    case NORMALIZE_NMT: s->drops_start |= map_nmt(text, len, out); break;
    }
    return STATUS_OK;
}

enum status normalizer_run(struct normalizer_scratch *s, const unsigned char *text, size_t len,
                           const unsigned char **out, size_t *out_len)
{
    enum { MAX_EXTRA = 64 << 20, MAX_FACTOR = 8 };
    s->drops_start = false;
    s->max_len = MAX_EXTRA + MAX_FACTOR * len;
    for (size_t i = 0, used = 0; i < s->normalizer->count; i++) {
        const struct normalizer_step *step = &s->normalizer->steps[i];
        struct text *next = &s->texts[used % 2];
        text_clear(next);
        if (step->kind == NORMALIZE_FORM && !unicode_normalize(step->form, text, len, next))
            continue;
        used++;
        text_reserve(next, len + 1);
        if (step->kind != NORMALIZE_FORM) TRY(run_step(s, i, text, len, next));
        text = (const unsigned char *)next->data, len = next->len;
    }
    *out = text, *out_len = len;
    return STATUS_OK;
}
