// SPDX-License-Identifier: Apache-2.0
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the control character at `at`; 0: not one.  C1 controls are two bytes in UTF-8. */
static size_t control_length(const unsigned char *at)
{
    if (at[0] < 0x20 || at[0] == 0x7f) return 1;
    return at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0 ? 2 : 0;
}

static bool continues_character(unsigned char byte) { return (byte & 0xc0) == 0x80; }

/* How many bytes from `at` on are printable ASCII, eight at a time. */
static size_t plain_length(const unsigned char *at, size_t len)
{
    const uint64_t ones = 0x0101010101010101;
    uint64_t word;
    size_t n = 0;
    for (; n + sizeof word <= len; n += sizeof word) {
        memcpy(&word, at + n, sizeof word);
        if ((word | (word + ones) | (word - ones * ' ')) & ones << 7) break;
    }
    while (n < len && at[n] >= ' ' && at[n] < 0x7f) n++;
    return n;
}

char *escape_controls(char *to, size_t size, const char *from, const char *keep)
{
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)from, *end = at + strlen(from);
    while (at < end) {
        size_t left = (size_t)(end - at), room = size - 1 - used;
        size_t plain = plain_length(at, left < room ? left : room);
        memcpy(to + used, at, plain);
        used += plain, at += plain;
        if (at == end) break;
        char piece[8] = {(char)*at};
        size_t control = strchr(keep, *at) ? 0 : control_length(at);
        if (control && (*at == '\n' || *at == '\t'))
            snprintf(piece, sizeof piece, "\\%c", *at == '\n' ? 'n' : 't');
        else if (control)
            snprintf(piece, sizeof piece, "\\x%02x", at[control - 1]);
        size_t len = strlen(piece);
        if (used + len + 1 > size) break;
        memcpy(to + used, piece, len);
        used += len, at += control ? control : 1;
    }
    if (continues_character(*at)) { /* the cut is within a character */
        while (used && continues_character((unsigned char)to[used - 1])) used--;
        used -= used > 0;
    }
    to[used] = 0;
    return to;
}
