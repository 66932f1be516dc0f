// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/regex.h"

/* The matches and the text between them, separated by bars. */
static enum status pieces(const char *pattern, const char *string, size_t len, struct text *out)
{
    struct regex *r;
    const unsigned char *bytes = (const unsigned char *)string;
    TRY(regex_compile(&r, pattern));
    struct regex_match *m = regex_match_make(r);
    enum status st = STATUS_OK;
    text_clear(out);
    text_adds(out, "");
    struct regex_span s;
    for (size_t at = 0; at < len && !st; at = s.end) {
        st = regex_find(m, bytes, len, at, &s);
        if (st) break;
        CHECK(s.begin >= at && s.end <= len && (s.begin < s.end || s.begin == len));
        if (at) text_adds(out, "|");
        text_add(out, string + at, s.begin - at);
        if (s.begin > at && s.begin < len) text_adds(out, "|");
        text_add(out, string + s.begin, s.end - s.begin);
    }
    regex_match_free(m);
    regex_free(r);
    return st;
}

TEST(regex_finds_successive_matches)
{
    static const char *const rows[][3] = {
        {"[0-9]", "ab12 c3", "ab|1|2| c|3"},
        {"[0-9]+", "12", "12"},
        {"x", "abc", "abc"},
        {" ?[a-z]+", "one two  three", "one| two| | three"},
        {"\\p{L}+", "\u00e4\u00f6 \u4e2d\u6587!", "\u00e4\u00f6| |\u4e2d\u6587|!"},
        {"\\s+(?!\\S)|\\s+", "a   b ", "a|  | |b| "},
        {"(?i:'s)", "it'S", "it|'S"},
        {"a", "", ""},
    };
    struct text got = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_STATUS(OK, pieces(rows[i][0], rows[i][1], strlen(rows[i][1]), &got));
        if (strcmp(got.data, rows[i][2])) fail_msg("%s: %s", rows[i][0], got.data);
    }
    text_release(&got);
}

TEST(regex_rejects_patterns_that_match_the_empty_string)
{
    struct regex *r = NULL;
    CHECK_STATUS(UNSUPPORTED, regex_compile(&r, "x*"));
    CHECK_MESSAGE("the empty string");
    CHECK_STATUS(UNSUPPORTED, regex_compile(&r, "(?=b)"));
}

TEST(regex_anchors_match_at_line_breaks)
{
    struct text got = {0};
    CHECK_STATUS(OK, pieces("^a|.$", "ab\nab", 5, &got));
    CHECK(!strcmp(got.data, "a|b|\n|a|b"));
    text_release(&got);
}

TEST(regex_never_matches_across_invalid_utf8)
{
    struct text got = {0};
    CHECK_STATUS(OK, pieces("\\p{L}+",
                            "ab\xFF"
                            "cd\xC3",
                            6, &got));
    CHECK(!strcmp(got.data, "ab|\xFF|cd|\xC3"));
    CHECK_STATUS(OK, pieces("[a-z]", "\0a\0", 3, &got));
    CHECK(got.len == 5 && !memcmp(got.data, "\0|a|\0", 5));
    text_release(&got);
}

TEST(regex_names_the_offset_of_a_syntax_error)
{
    struct regex *r = NULL;
    CHECK_STATUS(UNSUPPORTED, regex_compile(&r, "ab(c"));
    CHECK_MESSAGE("byte 4 of \"ab(c\"");
    CHECK_STATUS(UNSUPPORTED, regex_compile(&r, "\\p{Klingon}"));
    regex_free(NULL);
    regex_match_free(NULL);
}

TEST(regex_matches_long_text_without_a_large_stack)
{
    enum { LONG = 300000 };
    struct text string = {0}, got = {0};
    for (int i = 0; i < LONG; i++) text_adds(&string, i % 2 ? "a" : "b");
    CHECK_STATUS(OK, pieces("(?:(a)|(b))+", string.data, string.len, &got));
    CHECK(got.len == LONG);
    text_release(&string);
    text_release(&got);
}

TEST(regex_match_limit_is_an_error)
{
    struct text got = {0};
    const char *string = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    CHECK_STATUS(RECORD, pieces("(?:a+)+[bc]", string, strlen(string), &got));
    CHECK_MESSAGE("byte 0");
    text_release(&got);
}

TEST(regex_reports_the_version_of_pcre2)
{
    struct text version = {0};
    regex_library_version(&version);
    CHECK(!strncmp(version.data, "10.", 3));
    text_release(&version);
}
