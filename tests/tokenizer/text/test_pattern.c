// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/pattern.h"
#include "tokenizer/text/regex.h"

TEST(pattern_keeps_syntax_common_to_both_libraries)
{
    static const char *const same[] = {
        "",       "a|b ?c+",     "(?i:'s|'t)",         "a{2}b{1,3}c{2,}",
        "a++b?+", "(?<=a)(?!b)", "[^\\r\\n\\-\\]a-z]", "{a}x{",
        "(?i)a",  "^a$.",        "\xE4\xB8\x80-\\."};
    struct text out = {0};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        text_clear(&out);
        text_adds(&out, "");
        CHECK_STATUS(OK, pattern_translate(same[i], &out));
        if (strcmp(out.data, same[i])) fail_msg("%s: %s", same[i], out.data);
    }
    text_release(&out);
}

/* Whether the first match is the whole text. */
static bool matches(const char *pattern, const char *string)
{
    struct regex *r = NULL;
    struct regex_span s;
    CHECK_STATUS(OK, regex_compile(&r, pattern));
    struct regex_match *m = regex_match_make(r);
    CHECK_STATUS(OK, regex_find(m, (const unsigned char *)string, strlen(string), 0, &s));
    regex_match_free(m);
    regex_free(r);
    return s.begin == 0 && s.end == strlen(string);
}

TEST(pattern_classes_use_the_unicode_version_of_tokenizers)
{
    CHECK(matches("\\p{L}+", "a\xE4\xB8\xAD\xF0\xB1\x8D\x90")); /* U+31350, new in 15.0 */
    CHECK(matches("[^\\p{L}]+", "1 \xF0\x9E\x93\xB0"));         /* U+1E4F0 is a digit */
    CHECK(matches("\\d+", "1\xD9\xA1\xF0\x9E\x93\xB0") && !matches("\\d", "a"));
    CHECK(matches("\\P{L}", "1") && matches("\\p{^L}", "1") && matches("[\\P{L}]", "1"));
    CHECK(!matches("\\P{L}", "\xF0\xB1\x8D\x90") && matches("\\D", "a") && matches("[\\D]", "a"));
    CHECK(matches("\\s+", " \t\n\xC2\x85\xE3\x80\x80") && matches("[\\sa]+", " a"));
    CHECK(!matches("\\s", "\xE1\xA0\x8E") && matches("\\S", "\xE1\xA0\x8E")); /* U+180E */
    CHECK(matches("[^\\S\\n]+", " \t") && !matches("[^\\S\\n]+", "\n"));
}

/* Oniguruma has no script extensions. */
TEST(pattern_scripts_exclude_characters_that_scripts_share)
{
    CHECK(matches("\\p{Han}+", "\xE4\xB8\xAD\xE3\x80\x85") &&
          matches("[\\p{Han}]", "\xE4\xB8\xAD"));
    CHECK(matches("\\p{Han}", "\xF0\xB1\x8D\x90")); /* U+31350, new in 15.0 */
    CHECK(!matches("\\p{Han}", "\xE3\x80\x81") && matches("\\P{Han}", "\xE3\x80\x81")); /* comma */
    CHECK(matches("[\\P{Han}]", "\xE3\x80\x81") && !matches("[\\P{Han}]", "\xE4\xB8\xAD"));
    CHECK(!matches("\\p{Hiragana}", "\xE3\x80\x82") && matches("\\p{Alphabetic}", "a"));
}

TEST(pattern_translates_character_codes_and_nested_classes)
{
    CHECK(matches("\\u4e2d\\x41\\x{4e2d}", "\xE4\xB8\xAD"
                                           "A\xE4\xB8\xAD"));
    CHECK(matches("\\v", "\v") && !matches("\\v", "\n"));
    CHECK(matches("[^(\\s|[.,!])]+", "abc") && !matches("[^(\\s|[.,!])]+", "a,"));
    CHECK(!matches("[^(\\s|[.,!])]+", "a)") && matches("[a[bc[d]]]+", "abcd"));
    CHECK(matches("a$|b", "a") && matches("[\\u4e00-\\u9fa5]", "\xE4\xB8\xAD"));
}

TEST(pattern_rejects_unsupported_syntax_with_its_offset)
{
    static const char *const rows[][2] = {
        {"\\w+", "\\w at byte 0"},
        {"ab\\h", "\\h at byte 2"},
        {"\\b", "\\b"},
        {"\\1", "\\1"},
        {"\\K", "\\K"},
        {"a\\", "lone backslash"},
        {"\\pL", "without { }"},
        {"\\p{L", "without { }"},
        {"\\p{}", "without a plain name"},
        {"\\p{L&}", "without a plain name"},
        {"\\xF0", "not a character"},
        {"\\x{}", "character code"},
        {"\\u12", "character code"},
        {"\\x4", "character code"},
        {"[a&&b]", "&&"},
        {"[[:alpha:]]", "nested class"},
        {"[a[^b]]", "nested class"},
        {"[a-[b]]", "nested class"},
        {"[]a]", "begins with ]"},
        {"(?m)a", "group"},
        {"a(?i)b", "group"},
        {"(?<name>a)", "group"},
        {"(*UTF)a", "begins with *"},
        {"a{,3}", "{ }"},
        {"a{2}+", "{ }"},
        {"a{2}?", "{ }"},
    };
    struct text out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum status st = pattern_translate(rows[i][0], &out);
        if (st != STATUS_UNSUPPORTED || !strstr(status_message(), rows[i][1]))
            fail_msg("%s: %s", rows[i][0], st ? status_message() : "read");
        CHECK_MESSAGE("at byte");
    }
    text_release(&out);
}
