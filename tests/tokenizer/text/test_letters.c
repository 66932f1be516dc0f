// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/letters.h"

TEST(each_byte_has_a_letter_that_reads_back)
{
    struct letters l;
    struct text letters = {0}, bytes = {0};
    unsigned char all[256];
    for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
    letters_init(&l);
    letters_add(&letters, all, sizeof all, false);
    CHECK(letters.len == 94 + 2 * 162);
    CHECK(letters_read(&l, letters.data, letters.len, &bytes));
    CHECK(bytes.len == 256 && !memcmp(bytes.data, all, 256));
    text_release(&letters), text_release(&bytes);
}

TEST(letters_are_those_of_gpt2)
{
    struct text t = {0};
    letters_add(&t, (const unsigned char *)" a\n\x7F\xA0\xAD\xFF", 7, false);
    CHECK(!strcmp(t.data, "\xC4\xA0"
                          "a"
                          "\xC4\x8A\xC4\xA1\xC5\x82\xC5\x83\xC3\xBF"));
    text_clear(&t);
    letters_add(&t, (const unsigned char *)"\"\\", 2, true);
    CHECK(!strcmp(t.data, "\\\"\\\\"));
    text_release(&t);
}

TEST(what_is_not_of_the_alphabet_is_no_token)
{
    struct letters l;
    struct text bytes = {0};
    letters_init(&l);
    CHECK(!letters_read(&l, "", 0, &bytes));
    CHECK(!letters_read(&l, "a b", 3, &bytes));
    CHECK(!letters_read(&l, "\xC5\x84", 2, &bytes));
    CHECK(!letters_read(&l, "\xE4\xB8\xAD", 3, &bytes));
    text_release(&bytes);
}
