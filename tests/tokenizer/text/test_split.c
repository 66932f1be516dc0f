// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rng.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"

typedef size_t splitter(const unsigned char *text, size_t len);

static void check_pieces(splitter *split, const char *string, const char *want)
{
    const unsigned char *bytes = (const unsigned char *)string;
    struct text got = {0};
    for (size_t at = 0, n, len = strlen(string); at < len; at += n) {
        n = split(bytes + at, len - at);
        CHECK(n > 0 && n <= len - at);
        if (at) text_adds(&got, "|");
        text_add(&got, string + at, n);
    }
    if (strcmp(got.data, want)) fail_msg("\"%s\", expected \"%s\"", got.data, want);
    text_release(&got);
}

TEST(llama3_keeps_the_character_before_a_word)
{
    check_pieces(split_llama3, "Hello world", "Hello| world");
    check_pieces(split_llama3, "(word)\tword", "(word|)|\tword");
    check_pieces(split_llama3, "a\nb\rc", "a|\n|b|\r|c");
    check_pieces(split_llama3, "1a -b __init__", "1|a| -|b| __|init|__");
    check_pieces(split_llama3, "\u00c5ngstr\u00f6m\u00a0\u4e2d\u6587",
                 "\u00c5ngstr\u00f6m|\u00a0\u4e2d\u6587");
    check_pieces(split_llama3, "e\u0301a", "e|\u0301a");
    check_pieces(split_llama3, "\U0001f600\u200d\U0001f600x", "\U0001f600\u200d\U0001f600|x");
}

TEST(llama3_splits_numbers_into_three_digits)
{
    check_pieces(split_llama3, "1234567", "123|456|7");
    check_pieces(split_llama3, " 12,345.6", " |12|,|345|.|6");
    check_pieces(split_llama3, "\u0661\u0662\u0663\u0664\u00bd", "\u0661\u0662\u0663|\u0664\u00bd");
}

TEST(llama3_matches_contractions_in_any_case)
{
    check_pieces(split_llama3, "it's IT'S we'Re I'LL", "it|'s| IT|'S| we|'Re| I|'LL");
    check_pieces(split_llama3, "'sun 'Tis 'll 'l 'x", "'s|un| '|Tis| '|ll| '|l| '|x");
    check_pieces(split_llama3, "a'\u017fb 'ves'd'M", "a|'\u017f|b| '|ves|'d|'M");
    check_pieces(split_llama3, "don\u2019t''s'", "don|\u2019t|''|s|'");
}

TEST(llama3_ends_white_space_at_line_breaks_and_before_words)
{
    check_pieces(split_llama3, "a   b", "a|  | b");
    check_pieces(split_llama3, "a \n  \n  b", "a| \n  \n| | b");
    check_pieces(split_llama3, "a   ", "a|   ");
    check_pieces(split_llama3, "x\t\t1", "x|\t|\t|1");
    check_pieces(split_llama3, "  !\n\ny", " | !\n\n|y");
    check_pieces(split_llama3, "!!\r\n\n  z", "!!\r\n\n| | z");
    check_pieces(split_llama3, "\u3000\u3000a\u2028", "\u3000|\u3000a|\u2028");
    check_pieces(split_llama3, "\n\n", "\n\n");
    check_pieces(split_llama3, " ", " ");
}

TEST(gpt2_keeps_a_space_before_words_numbers_and_symbols)
{
    check_pieces(split_gpt2, "Hello world 1234567 !!", "Hello| world| 1234567| !!");
    check_pieces(split_gpt2, "(word)\tword", "(|word|)|\t|word");
    check_pieces(split_gpt2, "it's IT'S 'll", "it|'s| IT|'|S| '|ll");
    check_pieces(split_gpt2, "a   b  \n", "a|  | b|  \n");
    check_pieces(split_gpt2, "a\n\nb ", "a|\n|\n|b| ");
    check_pieces(split_gpt2, "!\nx", "!|\n|x");
}

TEST(splitters_treat_invalid_utf8_as_symbols)
{
    check_pieces(split_llama3, "a\xFF\xFE\n!", "a|\xFF\xFE\n|!");
    check_pieces(split_llama3,
                 "\xC3"
                 "a \xE4\xB8 b",
                 "\xC3"
                 "a| \xE4\xB8| b");
    check_pieces(split_gpt2, "a\xFF 1\x80", "a|\xFF| 1|\x80");
}

/* Appends a random character.  They cover every class and those that the patterns name, and all are
 * in old versions of Unicode. */
static void add_character(struct text *t, uint64_t stream, uint64_t position)
{
    static const char *const set[] = {
        "a",      "z",      "S",      "t",      "'s",   "'",      "'Re",     "'ll",        "'V",
        "\u017f", "\u00e9", "\u4e2d", "\u05d0", "0",    "7",      "\u0663",  "\u00bd",     " ",
        " ",      " ",      "\n",     "\r",     "\r\n", "\t",     "\v",      "\xC2\x85",   "\u00a0",
        "\u2003", "\u3000", "!",      ".",      "_",    "\u0301", "\u200d",  "\U0001f600", "\x01",
        "\x1c",   "\u2019", "@",      "[",      "`",    "{",      "abcdefgh"};
    text_adds(t, set[rng_below(sizeof set / sizeof *set, 3, RNG_TEST, stream, position)]);
}

static void check_against(splitter *split, const char *pattern, uint64_t stream)
{
    struct regex *r;
    struct text string = {0};
    CHECK_STATUS(OK, regex_compile(&r, pattern));
    struct regex_match *m = regex_match_make(r);
    for (uint64_t k = 0; k < 4000; k++) {
        text_clear(&string);
        for (uint64_t i = 0; i <= k % 30; i++) add_character(&string, stream, 64 * k + i);
        const unsigned char *bytes = (const unsigned char *)string.data;
        struct regex_span s;
        for (size_t at = 0, got; at < string.len; at += got) {
            CHECK_STATUS(OK, regex_find(m, bytes, string.len, at, &s));
            got = split(bytes + at, string.len - at);
            if (s.begin != at || got != s.end - at)
                fail_msg("\"%s\" at %zu: %zu bytes, not %zu", string.data, at, got,
                         s.end - s.begin);
        }
    }
    text_release(&string);
    regex_match_free(m);
    regex_free(r);
}

TEST(splitters_equal_their_patterns_on_random_text)
{
    check_against(split_llama3, split_llama3_pattern, 1);
    check_against(split_gpt2, split_gpt2_pattern, 2);
    check_against(split_qwen2, split_qwen2_pattern, 3);
    check_against(split_cl100k, split_cl100k_pattern, 4);
}

/* Whether the pieces of text[0, end) tile it up to `end`, as those of the whole text do. */
static void check_pieces_end_at(const unsigned char *text, size_t len, size_t end)
{
    for (size_t at = 0, n; at < end; at += n) {
        n = split_llama3(text + at, len - at);
        if (n > end - at || n != split_llama3(text + at, end - at))
            fail_msg("\"%.*s\": a piece at %zu crosses or depends on what follows %zu", (int)len,
                     (const char *)text, at, end);
    }
}

TEST(texts_divided_at_boundaries_have_the_same_pieces)
{
    struct text string = {0};
    size_t boundaries = 0;
    for (uint64_t k = 0; k < 4000; k++) {
        text_clear(&string);
        for (uint64_t i = 0; i <= k % 30; i++) add_character(&string, 5, 64 * k + i);
        const unsigned char *bytes = (const unsigned char *)string.data;
        for (size_t at = 1; at < string.len; at++) {
            size_t end = split_llama3_boundary(bytes, string.len, at);
            CHECK(end >= at && end <= string.len);
            check_pieces_end_at(bytes, string.len, end);
            boundaries += end == at;
        }
    }
    CHECK(boundaries > 1000);
    text_release(&string);
}

TEST(boundaries_follow_letters_and_line_breaks)
{
    const unsigned char *text = (const unsigned char *)"ab1 c\n\n d\n\u4e2d";
    CHECK(split_llama3_boundary(text, 13, 1) == 5);   /* before the first line break */
    CHECK(split_llama3_boundary(text, 13, 6) == 9);   /* not before white space */
    CHECK(split_llama3_boundary(text, 13, 10) == 10); /* after a line break */
    CHECK(split_llama3_boundary(text, 13, 11) == 13); /* the end */
}
