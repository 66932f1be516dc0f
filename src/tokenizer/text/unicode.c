// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/unicode.h"

#include "tokenizer/text/unicode_table.inc"

enum { CLASS_BITS = 3 };

static unsigned table_entry(uint32_t code)
{
    return code > 0x10FFFF ? UNICODE_OTHER : unicode_blocks[unicode_index[code >> 7]][code & 127];
}

enum unicode_class unicode_class_of(uint32_t code)
{
    return (enum unicode_class)(table_entry(code) & CLASS_BITS);
}

bool unicode_has_mark(uint32_t code, unsigned marks) { return table_entry(code) & marks; }

/* Length of the valid UTF-8 sequence at at[0]; 0 if it is invalid. */
static int utf8_sequence_length(const unsigned char *at, size_t len)
{
    int n = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    if (n == 0 || at[0] > 0xF4 || (size_t)n > len) return 0;
    for (int i = 1; i < n; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if (at[0] == 0xE0 && at[1] < 0xA0) return 0;
    if (at[0] == 0xED && at[1] > 0x9F) return 0;
    if (at[0] == 0xF0 && at[1] < 0x90) return 0;
    if (at[0] == 0xF4 && at[1] > 0x8F) return 0;
    return n;
}

uint32_t unicode_decode(const unsigned char *at, size_t len, int *size)
{
    static const unsigned char lead[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    int n = utf8_sequence_length(at, len);
    *size = n ? n : 1;
    if (n <= 1) return at[0];
    uint32_t code = at[0] & lead[n];
    for (int i = 1; i < n; i++) code = code << 6 | (at[i] & 0x3F);
    return code;
}

enum unicode_class unicode_next_multibyte(const unsigned char *at, size_t len, int *size)
{
    if (!utf8_sequence_length(at, len)) {
        *size = 1;
        return UNICODE_OTHER;
    }
    return unicode_class_of(unicode_decode(at, len, size));
}
