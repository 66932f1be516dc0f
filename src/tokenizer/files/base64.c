// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/base64.h"

#include <stdint.h>

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t len, unsigned char *out, size_t capacity)
{
    size_t n = 0, data = len;
    while (data && len - data < 2 && text[data - 1] == '=') data--;
    if (len % 4 || data % 4 == 1) return -1;
    uint32_t bits = 0;
    for (size_t i = 0; i < data; i++) {
        int digit = base64_digit((unsigned char)text[i]);
        if (digit < 0) return -1;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 0) continue;
        if (n == capacity) return -1;
        out[n++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return (int)n;
}

void base64_encode(struct text *out, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < len; at += 3) {
        uint32_t bits = 0;
        char four[4];
        for (size_t i = 0; i < 3; i++) bits = bits << 8 | (at + i < len ? bytes[at + i] : 0);
        for (size_t i = 0; i < 4; i++)
            four[i] = at + i <= len ? digits[bits >> (18 - 6 * i) & 63] : '=';
        text_add(out, four, sizeof four);
    }
}
