// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_text.h"

#include "base/status.h"

#include <string.h>

/* Other white space than U+0009..000D, 001C..0020 and 2000..200A. */
static const char *const spaces[] = {
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
    "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80",
};
enum { NUM_SPACES = sizeof spaces / sizeof *spaces };

/* Bytes of the white-space character that these `len` bytes begin with; 0: none. */
static size_t space_at(const char *at, size_t len)
{
    const unsigned char *c = (const unsigned char *)at;
    if (!len) return 0;
    if ((c[0] >= 0x09 && c[0] <= 0x0D) || (c[0] >= 0x1C && c[0] <= 0x20)) return 1;
    if (len >= 3 && c[0] == 0xE2 && c[1] == 0x80 && c[2] >= 0x80 && c[2] <= 0x8A) return 3;
    for (size_t i = 0; i < NUM_SPACES; i++) {
        size_t n = strlen(spaces[i]);
        if (len >= n && !memcmp(at, spaces[i], n)) return n;
    }
    return 0;
}

size_t task_text_leading_space(const char *bytes, size_t len)
{
    size_t space = 0;
    for (size_t n; (n = space_at(bytes + space, len - space)) > 0;) space += n;
    return space;
}

size_t task_text_trailing_space(const char *bytes, size_t len)
{
    size_t end = len;
    while (end) {
        size_t begin = end - 1;
        while (begin && (bytes[begin] & 0xC0) == 0x80) begin--; /* the last character */
        if (space_at(bytes + begin, end - begin) != end - begin) break;
        end = begin;
    }
    return len - end;
}

void task_text_add_stripped(struct text *out, const char *string)
{
    size_t len = strlen(string), begin = task_text_leading_space(string, len);
    text_add(out, string + begin,
             len - begin - task_text_trailing_space(string + begin, len - begin));
}

int64_t task_text_length(const char *string)
{
    int64_t length = 0;
    for (const char *c = string; *c; c++) length += (*c & 0xC0) != 0x80;
    return length;
}

void task_text_replace(struct text *t, const char *from, const char *to)
{
    size_t from_len = strlen(from), to_len = strlen(to);
    BUG_IF(to_len > from_len);
    if (!t->len) return;
    char *into = t->data;
    const char *at = t->data;
    for (const char *found; (found = strstr(at, from)); at = found + from_len) {
        memmove(into, at, (size_t)(found - at));
        into += found - at;
        memcpy(into, to, to_len);
        into += to_len;
    }
    size_t left = strlen(at);
    memmove(into, at, left + 1);
    t->len = (size_t)(into - t->data) + left;
}

void task_text_remove_brackets(struct text *t)
{
    if (!t->len) return;
    char *into = t->data;
    for (const char *at = t->data; *at;) {
        size_t inner = *at == '[' ? 1 + strcspn(at + 1, "]\n") : 0;
        if (inner && at[inner] == ']')
            at += inner + 1;
        else
            *into++ = *at++;
    }
    *into = '\0';
    t->len = (size_t)(into - t->data);
}
