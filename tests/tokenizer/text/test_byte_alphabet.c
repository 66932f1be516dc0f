// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/byte_alphabet.h"

TEST(byte_alphabet_round_trips_every_byte)
{
    struct byte_alphabet a;
    struct text encoded = {0}, bytes = {0};
    unsigned char all[256];
    for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
    byte_alphabet_init(&a);
    byte_alphabet_encode(&encoded, all, sizeof all);
    CHECK(encoded.len == 94 + 2 * 162);
    CHECK(byte_alphabet_decode(&a, encoded.data, encoded.len, &bytes));
    CHECK(bytes.len == 256 && !memcmp(bytes.data, all, 256));
    text_release(&encoded), text_release(&bytes);
}

TEST(byte_alphabet_matches_gpt2)
{
    struct text t = {0};
    byte_alphabet_encode(&t, (const unsigned char *)" a\n\x7F\xA0\xAD\xFF", 7);
    CHECK(!strcmp(t.data, "\xC4\xA0"
                          "a"
                          "\xC4\x8A\xC4\xA1\xC5\x82\xC5\x83\xC3\xBF"));
    text_clear(&t);
    byte_alphabet_encode(&t, (const unsigned char *)"\"\\", 2);
    CHECK(!strcmp(t.data, "\"\\"));
    text_release(&t);
}

TEST(byte_alphabet_rejects_other_characters)
{
    struct byte_alphabet a;
    struct text bytes = {0};
    byte_alphabet_init(&a);
    CHECK(!byte_alphabet_decode(&a, "", 0, &bytes));
    CHECK(!byte_alphabet_decode(&a, "a b", 3, &bytes));
    CHECK(!byte_alphabet_decode(&a, "\xC5\x84", 2, &bytes));
    CHECK(!byte_alphabet_decode(&a, "\xE4\xB8\xAD", 3, &bytes));
    text_release(&bytes);
}
