// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/unicode.h"

static int encode(uint32_t code, unsigned char *out)
{
    if (code < 0x80) return out[0] = (unsigned char)code, 1;
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6) out[i] = (unsigned char)(0x80 | (code & 63));
    out[0] = (unsigned char)((0xF0u << (4 - n)) | code);
    return n;
}

static enum unicode_class class_of(uint32_t code)
{
    unsigned char bytes[4];
    int size, n = encode(code, bytes);
    return unicode_next(bytes, (size_t)n, &size);
}

TEST(unicode_classes_match_general_categories)
{
    static const struct {
        enum unicode_class kind;
        uint32_t codes[10];
    } rows[] = {
        {UNICODE_LETTER, {'a', 'Z', 0xAA, 0x130, 0x17F, 0x3B1, 0x5D0, 0x4E2D, 0xD55C, 0x2A6D6}},
        {UNICODE_NUMBER, {'0', '9', 0xB2, 0xBD, 0x661, 0x966, 0x2164, 0x3007, 0xFF15, 0x1D7D8}},
        {UNICODE_SPACE, {'\t', '\v', ' ', 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x3000}},
        {UNICODE_OTHER, {'\'', '_', 0x1C, 0xAD, 0x301, 0x200B, 0x200D, 0xFEFF, 0x1F600, 0xE000}},
        {UNICODE_OTHER, {0, 0x378, 0x558, 0xFFFF, 0x3E3A4, 0x10FFFF, 0x110000}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < 10; i++)
            if (class_of(rows[r].codes[i]) != rows[r].kind)
                fail_msg("U+%04X is %d", rows[r].codes[i], class_of(rows[r].codes[i]));
}

TEST(unicode_decodes_every_code_point)
{
    unsigned char bytes[5] = {0};
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        int size, n = encode(code, bytes);
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        bytes[n] = 0xBF; /* the byte after the character must not matter */
        CHECK(unicode_decode(bytes, (size_t)n + 1, &size) == code && size == n);
        unsigned class = unicode_next(bytes, (size_t)n, &size);
        CHECK(size == n);
        CHECK(class == (unicode_has_mark(code, 1) | (unsigned)unicode_has_mark(code, 2) << 1));
    }
}

TEST(invalid_utf8_decodes_byte_by_byte)
{
    static const char *const wrong[] = {
        "\x80",         "\xBFz",        "\xC0\x80",         "\xC1\xBF",         "\xC3",
        "\xC3(",        "\xE0\x80\x80", "\xE0\x9F\xBF",     "\xE4\xB8",         "\xE4\xB8(",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80", "\xFF",         "\xF0\x9F\x98",     "\xF0\x9F\x98(",    "\xF8\x88\x80\x80",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const unsigned char *at = (const unsigned char *)wrong[i];
        int size = 0;
        CHECK(unicode_next(at, strlen(wrong[i]), &size) == UNICODE_OTHER && size == 1);
        CHECK(unicode_decode(at, strlen(wrong[i]), &size) == at[0] && size == 1);
    }
}

TEST(unicode_does_not_read_past_the_end)
{
    unsigned char bytes[4];
    for (uint32_t code = 0x80; code < 0x110000; code += 0x3777) {
        int size, n = encode(code, bytes);
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        for (int len = 1; len < n; len++)
            CHECK(unicode_next(bytes, (size_t)len, &size) == UNICODE_OTHER && size == 1);
    }
}

TEST(unicode_marks_match_the_tokenizers_library)
{
    CHECK(unicode_has_mark('a', UNICODE_WORD) &&
          unicode_has_mark('_', UNICODE_WORD | UNICODE_DIGIT));
    CHECK(unicode_has_mark(0x301, UNICODE_WORD) && !unicode_has_mark(' ', UNICODE_WORD));
    CHECK(unicode_has_mark('$', UNICODE_PUNCTUATION) &&
          unicode_has_mark(0x3002, UNICODE_PUNCTUATION));
    CHECK(!unicode_has_mark(0x20AC, UNICODE_PUNCTUATION) &&
          !unicode_has_mark('a', UNICODE_PUNCTUATION));
    CHECK(unicode_has_mark('7', UNICODE_DIGIT) && unicode_has_mark(0xB2, UNICODE_DIGIT));
    CHECK(unicode_has_mark(0x11DE0, UNICODE_DIGIT) && class_of(0x11DE0) == UNICODE_OTHER);
    CHECK(!unicode_has_mark(0xE9, UNICODE_NFC) && unicode_has_mark(0xE9, UNICODE_NFD));
    CHECK(unicode_has_mark(0x301, UNICODE_NFC) && unicode_has_mark(0x212B, UNICODE_NFC));
    CHECK(!unicode_has_mark(0x110000, 0xFF) && !unicode_has_mark('a', UNICODE_NFC | UNICODE_NFD));
}
