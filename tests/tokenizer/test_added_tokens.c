// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/added_tokens.h"

/* Whether the matches, as "id:begin-end ", equal `want`. */
static bool found(const struct added_tokens *a, const char *text, const char *want)
{
    struct text got = {0};
    struct added_match m;
    struct added_scan s = {a, 0, (const unsigned char *)text, strlen(text), 0, 0};
    text_adds(&got, "");
    while (added_tokens_next(&s, &m)) text_addf(&got, "%d:%zu-%zu ", m.id, m.begin, m.end);
    bool same = !strcmp(got.data, want);
    if (!same) print_error("%s\n", got.data);
    text_release(&got);
    return same;
}

TEST(added_tokens_match_longest_first_and_skip_special_tokens)
{
    struct added_tokens a = {0};
    CHECK_STATUS(OK,
                 added_tokens_add(&a, 0, "<s>", (struct added_token){.id = 5, .special = true}));
    CHECK(!a.matches_text && found(&a, "a<s>", ""));
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "s>", (struct added_token){.id = 6}));
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "s>!", (struct added_token){.id = 7}));
    CHECK(a.matches_text && found(&a, "<s>s>s>!", "6:3-5 7:5-8 "));
    added_tokens_release(&a);
}

TEST(added_tokens_with_the_same_text_prefer_the_first_special_one)
{
    struct added_tokens a = {0};
    CHECK_STATUS(OK, added_tokens_add(&a, 1, "a", (struct added_token){.id = 6}));
    CHECK_STATUS(OK, added_tokens_add(&a, 1, "a", (struct added_token){.id = 7}));
    CHECK(a.count == 1 && a.tokens[0].id == 6 && a.matches_text);
    CHECK_STATUS(OK, added_tokens_add(&a, 1, "a", (struct added_token){.id = 8, .special = true}));
    CHECK_STATUS(OK, added_tokens_add(&a, 1, "a", (struct added_token){.id = 9}));
    CHECK(a.count == 1 && a.tokens[0].id == 8 && !a.matches_text);
    CHECK_STATUS(DATA, added_tokens_add(&a, 1, "", (struct added_token){.id = 10}));
    added_tokens_release(&a);
}

TEST(added_tokens_strip_adjacent_white_space_once)
{
    struct added_tokens a = {0};
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "<l>", (struct added_token){.id = 1, .lstrip = true}));
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "<r>", (struct added_token){.id = 2, .rstrip = true}));
    CHECK(found(&a, "a \xC2\xA0\n<l> b", "1:1-8 "));
    CHECK(found(&a, "a <r>\xE3\x80\x80\tb", "2:2-9 "));
    CHECK(found(&a, "<r>  <l>", "2:0-5 1:5-8 "));
    CHECK(found(&a, " <l>", "1:0-4 ") && found(&a, "<r> ", "2:0-4 "));
    CHECK(found(&a, "\xA0<l>", "1:1-4 ")); /* a byte of U+00A0 is not a space */
    added_tokens_release(&a);
}

/* As in the tokenizers library, which drops a match whose text a stripping one took. */
TEST(added_tokens_of_white_space_match_once_in_the_spaces_that_they_strip)
{
    struct added_tokens a = {0};
    const struct added_token both = {.id = 1, .lstrip = true, .rstrip = true};
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "\n\n", both));
    CHECK_STATUS(OK, added_tokens_add(&a, 0, "<r>", (struct added_token){.id = 2, .rstrip = true}));
    CHECK(found(&a, "a\n\n\n\n\na\n\n", "1:1-6 1:7-9 "));
    CHECK(found(&a, "<r> \n\n\n\nb", "2:0-8 "));
    added_tokens_release(&a);
}

TEST(single_word_added_tokens_match_only_between_word_boundaries)
{
    struct added_tokens a = {0};
    CHECK_STATUS(OK,
                 added_tokens_add(&a, 0, "it", (struct added_token){.id = 1, .single_word = true}));
    CHECK(found(&a, "it", "1:0-2 ") && found(&a, " it.", "1:1-3 ") && found(&a, "itit", ""));
    CHECK(found(&a, "sit", "") && found(&a, "its", "") && found(&a, "it_", "") &&
          found(&a, "1it", ""));
    CHECK(found(&a, "it\xC3\xA9", "") && found(&a, "\xC3\xA9it", "")); /* a two-byte letter */
    CHECK(found(&a, "\xE2\x82\xACit\xE2\x82\xAC", "1:3-5 "));          /* a three-byte symbol */
    CHECK(found(&a, "\xA9it\xA9", "1:1-3 "));                          /* invalid UTF-8 */
    added_tokens_release(&a);
}
