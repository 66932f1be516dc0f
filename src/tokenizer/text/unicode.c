// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/unicode.h"

#include "tokenizer/text/unicode_table.inc"

enum { CLASS_BITS = 3 };

static unsigned table_entry(uint32_t code)
{
    return code > 0x10FFFF ? UNICODE_OTHER : unicode_blocks[unicode_index[code >> 7]][code & 127];
}

bool unicode_has_mark(uint32_t code, unsigned marks) { return table_entry(code) & marks; }

static bool is_tail(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/* Returns the code point of the UTF-8 sequence that starts with the non-ASCII byte at[0], and its
 * length; if it is invalid, -1 and 1. */
static int32_t decode_sequence(const unsigned char *at, size_t len, int *size)
{
    int32_t lead = at[0], code;
    *size = 1;
    if (lead < 0xE0) {
        if (lead < 0xC2 || len < 2 || !is_tail(at[1])) return -1;
        *size = 2;
        return (lead & 0x1F) << 6 | (at[1] & 0x3F);
    }
    if (len < 3 || !is_tail(at[1]) || !is_tail(at[2])) return -1;
    code = (lead & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F);
    if (lead < 0xF0) {
        if (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF)) return -1;
        *size = 3;
        return code;
    }
    if (lead > 0xF4 || len < 4 || !is_tail(at[3])) return -1;
    code = (lead & 0x07) << 18 | (code & 0xFFF) << 6 | (at[3] & 0x3F);
    if (code < 0x10000 || code > 0x10FFFF) return -1;
    *size = 4;
    return code;
}

uint32_t unicode_decode(const unsigned char *at, size_t len, int *size)
{
    *size = 1;
    int32_t code = at[0] < 0x80 ? at[0] : decode_sequence(at, len, size);
    return code < 0 ? at[0] : (uint32_t)code;
}

enum unicode_class unicode_next_multibyte(const unsigned char *at, size_t len, int *size)
{
    int32_t code = decode_sequence(at, len, size);
    if (code < 0) return UNICODE_OTHER;
    return (enum unicode_class)(unicode_blocks[unicode_index[code >> 7]][code & 127] & CLASS_BITS);
}
