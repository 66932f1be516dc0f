// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/byte_alphabet.h"

#include "tokenizer/text/unicode.h"

/* Bytes 0-32, 127-160 and 173 are not printable. */
static uint32_t code_point_of(unsigned byte)
{
    if (byte <= 32) return 0x100 + byte;
    if (byte >= 127 && byte <= 160) return 0x100 + 33 + byte - 127;
    return byte == 173 ? 0x143 : byte;
}

void byte_alphabet_init(struct byte_alphabet *a)
{
    for (int i = 0; i < BYTE_ALPHABET_END; i++) a->byte_of[i] = -1;
    for (unsigned byte = 0; byte < 256; byte++) a->byte_of[code_point_of(byte)] = (int16_t)byte;
}

bool byte_alphabet_decode(const struct byte_alphabet *a, const char *text, size_t len,
                          struct text *bytes)
{
    text_clear(bytes);
    for (size_t at = 0; at < len;) {
        int size;
        uint32_t code = unicode_decode((const unsigned char *)text + at, len - at, &size);
        if (code >= BYTE_ALPHABET_END || a->byte_of[code] < 0) return false;
        char byte = (char)a->byte_of[code];
        text_add(bytes, &byte, 1);
        at += (size_t)size;
    }
    return bytes->len > 0;
}

void byte_alphabet_encode(struct text *t, const unsigned char *bytes, size_t len)
{
    text_reserve(t, 2 * len);
    for (size_t i = 0; i < len; i++) {
        uint32_t code = code_point_of(bytes[i]);
        char utf8[2] = {(char)(0xC0 | code >> 6), (char)(0x80 | (code & 63))};
        if (code >= 0x80) {
            text_add(t, utf8, 2);
            continue;
        }
        text_add(t, &(char){(char)code}, 1);
    }
}
