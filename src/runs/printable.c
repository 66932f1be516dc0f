// SPDX-License-Identifier: Apache-2.0
#include "runs/printable.h"

#include <string.h>

static unsigned decode(const unsigned char *at, size_t len)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned point = at[0] & masks[len];
    for (size_t i = 1; i < len; i++) point = point << 6 | (at[i] & 0x3fu);
    return point;
}

/* The characters of Unicode's bidirectional algorithm: embeddings, overrides, isolates and marks;
 * and the separators of lines and paragraphs. */
static bool changes_layout(unsigned point)
{
    return (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
           point == 0x200e || point == 0x200f || point == 0x061c || point == 0x2028 ||
           point == 0x2029 || point == 0xfeff;
}

/* Appends the character at `at`, or the escape that stands for it; returns its length in bytes. */
static size_t add_character(struct text *out, const unsigned char *at, const unsigned char *end)
{
    size_t n = text_utf8_length(at, end);
    unsigned point = n ? decode(at, n) : 0;
    bool is_control = n && (point < 0x20 || (point >= 0x7f && point < 0xa0));
    if (!n || (is_control && n == 1))
        text_addf(out, "\\x%02x", *at), n = 1;
    else if (is_control)
        text_addf(out, "\\x%02x", point);
    else if (changes_layout(point))
        text_addf(out, "\\u%04x", point);
    else
        text_add(out, at, n);
    return n;
}

void printable_add(struct text *out, const char *bytes, size_t len)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + len;
    while (at < end) at += add_character(out, at, end);
}

void printable_adds(struct text *out, const char *string)
{
    printable_add(out, string, strlen(string));
}

char *printable_string(const char *bytes, size_t len, size_t most)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + len;
    struct text t = {0};
    size_t kept = 0;
    while (at < end) {
        at += add_character(&t, at, end);
        if (t.len > most) break;
        kept = t.len;
    }
    char *s = heap_string(t.data ? t.data : "", kept);
    text_release(&t);
    return s;
}

/* The blocks of Unicode 15 whose characters are wide, and those that combine with the character
 * before: enough for names and text, not for every emoji sequence. */
static int columns_of(unsigned point)
{
    static const struct {
        unsigned first, last;
    } wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x33ff},  {0x3400, 0x4dbf},
                {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},
                {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}},
      none[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x064b, 0x065f},
                {0x200b, 0x200d}, {0x20d0, 0x20f0}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
    if (point < 0x300) return 1;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (point >= none[i].first && point <= none[i].last) return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (point >= wide[i].first && point <= wide[i].last) return 2;
    return 1;
}

size_t printable_character(const char *at, int *columns)
{
    const unsigned char *from = (const unsigned char *)at;
    size_t n = text_utf8_length(from, from + strnlen(at, 4));
    *columns = n > 1 ? columns_of(decode(from, n)) : 1;
    return n ? n : 1;
}

size_t printable_width(const char *string)
{
    size_t width = 0;
    for (int columns; *string; width += (size_t)columns)
        string += printable_character(string, &columns);
    return width;
}

void printable_fit(struct text *out, const char *string, size_t width)
{
    size_t full = printable_width(string), used = 0, limit = full > width ? width - 1 : width;
    if (!width) return;
    while (*string) {
        int columns;
        size_t n = printable_character(string, &columns);
        if (used + (size_t)columns > limit) break;
        text_add(out, string, n);
        used += (size_t)columns, string += n;
    }
    if (full > width) text_adds(out, "~"), used++;
    for (; used < width; used++) text_adds(out, " ");
}
