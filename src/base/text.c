// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include "base/escape.h"
#include "base/status.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

size_t text_encode_utf8(uint32_t code, char *bytes)
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3F));
    bytes[0] = (char)(lead[n] | code);
    return n;
}

void text_add_utf8(struct text *t, uint32_t code)
{
    char bytes[4];
    text_add(t, bytes, text_encode_utf8(code, bytes));
}

void text_encode_le(uint64_t value, int bytes, void *to)
{
    for (int i = 0; i < bytes; i++) ((unsigned char *)to)[i] = value >> (8 * i) & 255;
}

void text_add_le(struct text *t, uint64_t value, int bytes)
{
    text_reserve(t, (size_t)bytes);
    text_encode_le(value, bytes, t->data + t->len);
    t->len += (size_t)bytes;
    t->data[t->len] = 0;
}

void text_add_escaped(struct text *t, const char *string)
{
    enum { ESCAPE_BYTES = 4 };
    size_t most = ESCAPE_BYTES * strlen(string);
    text_reserve(t, most);
    t->len += strlen(escape_controls(t->data + t->len, most + 1, string, ""));
}

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

char *text_trimmed(const char *string)
{
    static const char white[] = " \t\r\n";
    string += strspn(string, white);
    size_t n = strlen(string);
    while (n && strchr(white, string[n - 1])) n--;
    return heap_string(string, n);
}

size_t text_bom_length(const void *text, size_t len)
{
    return len >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

size_t text_utf8_length(const unsigned char *at, const unsigned char *end)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (*at < 0x80) return 1;
    int more = *at >= 0xF0 ? 3 : *at >= 0xE0 ? 2 : *at >= 0xC2 ? 1 : 0;
    if (!more || *at > 0xF4 || end - at <= more) return 0;
    uint32_t code = *at & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3F);
    }
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < least[more] || code > 0x10FFFF || surrogate ? 0 : (size_t)more + 1;
}

bool text_is_utf8(const char *bytes, size_t len)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + len;
    for (size_t n; at < end; at += n)
        if (!(n = text_utf8_length(at, end))) return false;
    return true;
}

bool text_is_choice(const char *words, const char *word, size_t len)
{
    for (const char *at = words; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == len && !strncmp(at, word, len)) return true;
    return false;
}

void text_add_choices(struct text *out, const char *words)
{
    for (const char *at = words; *at; at++) {
        if (*at != '|')
            text_add(out, at, 1);
        else
            text_adds(out, strchr(at + 1, '|') ? ", " : " or ");
    }
}

void text_add_shell(struct text *out, const char *word)
{
    const char *plain = word;
    while (isalnum((unsigned char)*plain) || (*plain && strchr("_.,:+-@/=%", *plain))) plain++;
    if (*word && !*plain) {
        text_adds(out, word);
        return;
    }
    text_adds(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            text_adds(out, "'\\''");
        else
            text_add(out, word, 1);
    text_adds(out, "'");
}
