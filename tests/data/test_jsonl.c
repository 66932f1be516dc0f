// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/jsonl.h"

static enum status pull(const char *line, const char *key, struct text *out)
{
    return jsonl_text(line, strlen(line), key, "a.jsonl, line 3", out);
}

static void check_text(const char *line, const char *want)
{
    struct text t = {0};
    CHECK_STATUS(OK, pull(line, "text", &t));
    if (t.len != strlen(want) || memcmp(t.data, want, t.len)) fail_msg("%s: %s", line, t.data);
    text_release(&t);
}

static void check_rejected(const char *line, const char *why)
{
    struct text t = {0};
    CHECK_STATUS(RECORD, pull(line, "text", &t));
    CHECK_MESSAGE("a.jsonl, line 3: ");
    CHECK_MESSAGE(why);
    text_release(&t);
}

TEST(jsonl_finds_the_key_among_members_of_any_type)
{
    check_text("{\"text\":\"a\"}", "a");
    check_text(" \t{ \"text\" : \"a b\" } \r", "a b");
    check_text("{\"n\": -1.5e3, \"t\": true, \"x\": null, \"text\": \"a\"}", "a");
    check_text("{\"meta\": {\"text\": \"no\", \"l\": [1, [\"}\", \"]\\\"\"]]}, \"text\": \"a\"}",
               "a");
    check_text("{\"text\": \"a\", \"after\": [{}, []]}", "a");
    check_text("{\"other\": \"text\", \"text\": \"\"}", "");
    check_text("{\"tex\": \"no\", \"texts\": \"no\", \"text\": \"a\"}", "a");
    check_text("\xEF\xBB\xBF{\"text\": \"a\"}", "a");
}

TEST(jsonl_finds_a_key_of_an_object_by_its_path)
{
    static const char *const cases[][3] = {
        {"a.b", "{\"b\": \"no\", \"a\": {\"x\": {\"b\": 1}, \"b\": \"yes\"}}", "yes"},
        {"a.b", "{\"a\": {\"b\": \"no\"}, \"a.b\": \"yes\"}", "yes"},
        {"a.b.c", "{\"a\": {\"b\": {\"c\": \"yes\"}}}", "yes"},
        {"a.b.c", "{\"a\": {\"b.c\": \"yes\"}}", "yes"},
        {"a.b", "{\"a\": null}", ""},
        {"a.b[].c", "{\"a\": {\"b\": [{\"c\": \"1\"}, {\"c\": \"2\"}]}}", "\n\n1\n\n2"},
        {"a[].b.c",
         "{\"a\": [{\"b\": {\"c\": \"1\"}}, {\"b\": null}, {\"b.c\": \"2\"}, {\"x\": 0}]}",
         "\n\n1\n\n2"},
        {"a[].b[].c",
         "{\"a\": [{\"b\": [{\"c\": \"1\"}, {\"x\": 0}]}, {\"b\": null}, {\"b\": []}, {},"
         " {\"b\": [{\"c\": \"2\"} ] , \"x\": [0]}]}",
         "\n\n1\n\n2"},
        {"a[].b.c[].d[].e", "{\"a\": [{\"b\": {\"c\": [{\"d\": [{\"e\": \"1\"}]}]}}]}", "\n\n1"},
    };
    struct text t = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(OK, pull(cases[i][1], cases[i][0], &t));
        if (strcmp(t.data, cases[i][2])) fail_msg("%s: %s", cases[i][1], t.data);
    }
    CHECK_STATUS(RECORD, pull("{\"a\": {\"c\": \"no\"}}", "a.b", &t));
    CHECK_MESSAGE("no key \"a.b\"");
    CHECK_STATUS(RECORD, pull("{\"a\": [{\"b\": \"no\"}]}", "a.b", &t));
    CHECK_STATUS(RECORD, pull("{\"a\": {\"b\": {}}}", "a.b", &t));
    CHECK_MESSAGE("not a string");
    CHECK_STATUS(RECORD, pull("{\"a\": [{\"b\": {\"c\": \"x\"}}]}", "a[].b[].c", &t));
    CHECK_MESSAGE("the value of \"a[].b[].c\" is not a list");
    CHECK_STATUS(RECORD, pull("{\"a\": {\"b\": \"x\"}} x", "a.b", &t));
    text_release(&t);
}

TEST(jsonl_compares_keys_after_unescaping)
{
    struct text t = {0};
    check_text("{\"t\\u0065xt\": \"a\"}", "a");
    CHECK_STATUS(OK, pull("{\"caf\\u00e9\": \"a\"}", "caf\xC3\xA9", &t));
    CHECK_STATUS(OK, pull("{\"a\\\"b\\\\\": \"a\"}", "a\"b\\", &t));
    CHECK_STATUS(RECORD, pull("{\"a\\\\b\": \"a\"}", "a\\\\b", &t));
    text_release(&t);
}

TEST(jsonl_decodes_every_json_escape)
{
    check_text("{\"text\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t.\"}", "\"\\/\b\f\n\r\t.");
    check_text("{\"text\": \"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\"}",
               "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    check_text("{\"text\": \"\xC3\xA9 \xF0\x9F\x98\x80\"}", "\xC3\xA9 \xF0\x9F\x98\x80");
    check_text("{\"text\": \"ends in \\\\\"}", "ends in \\");
    check_text("{\"text\": \"\\\\\\\\\\\"\"}", "\\\\\"");
    struct text t = {0};
    CHECK_STATUS(OK, pull("{\"text\": \"a\\u0000b\"}", "text", &t));
    CHECK(t.len == 3 && !memcmp(t.data, "a\0b", 3));
    text_release(&t);
}

TEST(jsonl_replaces_lone_surrogates)
{
    check_text("{\"text\": \"\\ud83d\"}", "\xEF\xBF\xBD");
    check_text("{\"text\": \"\\ud83dx\"}", "\xEF\xBF\xBDx");
    check_text("{\"text\": \"\\ude00\\ud83d\"}", "\xEF\xBF\xBD\xEF\xBF\xBD");
    check_text("{\"text\": \"\\ud83d\\ud83d\\ude00\"}", "\xEF\xBF\xBD\xF0\x9F\x98\x80");
    check_text("{\"text\": \"\\ud83d\\u0041\"}", "\xEF\xBF\xBD"
                                                 "A");
    check_text("{\"text\": \"\\ud83d\\n\"}", "\xEF\xBF\xBD\n");
}

TEST(jsonl_reports_the_byte_of_a_bad_escape_or_encoding)
{
    check_rejected("{\"text\": \"\\x41\"}", "byte 10 of the line: unknown escape");
    check_rejected("{\"text\": \"abc\\u12g4\"}", "byte 13 of the line: expected four hex digits");
    check_rejected("{\"text\": \"\\u12\"}", "four hex digits");
    check_rejected("{\"text\": \"\\ud83d\\u12\"}", "four hex digits");
    check_rejected("{\"text\": \"\xFF\"}", "not UTF-8");
    check_rejected("{\"text\": \"\xC0\x80\"}", "not UTF-8");
    check_rejected("{\"text\": \"\xED\xA0\x80\"}", "not UTF-8");
    check_rejected("{\"text\": \"cut \xE2\x82\"}", "not UTF-8");
}

TEST(jsonl_rejects_lines_that_are_not_a_single_object)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "not a JSON object"},
        {"   ", "not a JSON object"},
        {"[\"text\"]", "not a JSON object"},
        {"\"text\"", "not a JSON object"},
        {"{", "expected a key"},
        {"{text: 1}", "expected a key"},
        {"{\"text", "unterminated string"},
        {"{\"text\"", "expected :"},
        {"{\"text\": ", "unexpected end of line"},
        {"{\"text\": \"a", "unterminated string"},
        {"{\"text\": \"a\\\"}", "unterminated string"},
        {"{\"text\": \"a\"", "expected , or }"},
        {"{\"text\": \"a\",}", "expected a key"},
        {"{\"text\": \"a\" \"b\"}", "expected , or }"},
        {"{\"text\": \"a\"} x", "unexpected text after the object"},
        {"{\"text\": \"a\"}{\"text\": \"b\"}", "unexpected text after the object"},
        {"{\"a\": , \"text\": \"b\"}", "expected a value"},
        {"{\"a\": }", "expected a value"},
        {"{\"a\": [1, ", "unexpected end of line"},
        {"{\"a\": 1 2, \"text\": \"b\"}", "expected , or }"},
        {"{}", "no key \"text\""},
        {"{\"a\": {\"text\": \"b\"}}", "no key \"text\""},
        {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate key \"text\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rejected(cases[i].line, cases[i].why);
}

TEST(jsonl_rejects_values_that_are_not_strings)
{
    static const char *const values[] = {"1", "true", "[\"a\"]", "{\"text\": \"a\"}"};
    char line[64];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(line, sizeof line, "{\"text\": %s}", values[i]);
        check_rejected(line, "the value of \"text\" is not a string");
    }
}

TEST(jsonl_takes_null_for_an_empty_text)
{
    struct text t = {0};
    check_text("{\"text\": null}", "");
    check_text("{\"a\": 1, \"text\" : null , \"b\": 2}", "");
    CHECK_STATUS(OK, pull("{\"files\": null}", "files[].text", &t));
    CHECK(!t.len);
    check_rejected("{\"text\": nul}", "expected a value");
    check_rejected("{\"text\": nulll}", "expected , or }");
    text_release(&t);
}

/* In a member that is skipped, as the value of a key and as an item of a list. */
static bool accepts(const char *value)
{
    static const char *const frames[] = {"{\"a\": %s, \"text\": \"x\"}",
                                         "{\"text\": \"x\", \"a\": [[], {\"b\": %s}]}"};
    bool accepted[2];
    for (int i = 0; i < 2; i++) {
        struct text line = {0}, t = {0};
        const char *at = strstr(frames[i], "%s");
        text_add(&line, frames[i], (size_t)(at - frames[i]));
        text_adds(&line, value);
        text_adds(&line, at + 2);
        accepted[i] = !pull(line.data, "text", &t);
        text_release(&line), text_release(&t);
    }
    if (accepted[0] != accepted[1]) fail_msg("%s: accepted only in one place", value);
    return accepted[0];
}

static const char *const good[] = {"0",
                                   "-0",
                                   "10",
                                   "-1.5",
                                   "0.0",
                                   "1e5",
                                   "1E+05",
                                   "1.25e-10",
                                   "true",
                                   "false",
                                   "null",
                                   "[]",
                                   "{}",
                                   "[ ]",
                                   "{ }",
                                   "[[],{}]",
                                   "\"\"",
                                   "\"\\u00fF\"",
                                   "\"\\ud800\"",
                                   "\"\\\\\"",
                                   "[1, 2]",
                                   "[null]",
                                   "[\"]\"]",
                                   "\"\x7f\"",
                                   "{\"\": 0, \"\": 1}",
                                   "\n[\t1\r]\n",
                                   "{\"a\" : {\"b\":[{}]} }"};
static const char *const bad[] = {"",
                                  "01",
                                  "-",
                                  "-01",
                                  "+1",
                                  ".5",
                                  "1.",
                                  "1.e5",
                                  "1e",
                                  "1e+",
                                  "1e1.5",
                                  "1ea",
                                  "0x1",
                                  "1_0",
                                  "--1",
                                  "- 1",
                                  "1 000",
                                  "NaN",
                                  "nan",
                                  "Infinity",
                                  "-Infinity",
                                  "Inf",
                                  "True",
                                  "FALSE",
                                  "nul",
                                  "nulll",
                                  "truefalse",
                                  "undefined",
                                  "a",
                                  "'a'",
                                  "\"a",
                                  "a\"",
                                  "\"\\\"",
                                  "\"\\a\"",
                                  "\"\\x00\"",
                                  "\"\\u\"",
                                  "\"\\u00\"",
                                  "\"\\u00g0\"",
                                  "\"\\U0041\"",
                                  "\"\\'\"",
                                  "\"\\0\"",
                                  "\"\t\"",
                                  "\"\n\"",
                                  "\"\x01\"",
                                  "\"\x1f\"",
                                  "\"\r\"",
                                  "\"a\" \"b\"",
                                  "\"a\"b",
                                  "[1,]",
                                  "[,1]",
                                  "[1,,2]",
                                  "[,]",
                                  "[1 2]",
                                  "[1",
                                  "1]",
                                  "[1}",
                                  "[\"a\": 1]",
                                  "[1:2]",
                                  "]",
                                  "[",
                                  "[]]",
                                  "[[]",
                                  "[1;2]",
                                  "{",
                                  "}",
                                  "{]",
                                  "{\"a\"}",
                                  "{\"a\":}",
                                  "{:1}",
                                  "{1:1}",
                                  "{a: 1}",
                                  "{'a': 1}",
                                  "{\"a\" 1}",
                                  "{\"a\"::1}",
                                  "{\"a\",1}",
                                  "{,}",
                                  "{\"a\":1,}",
                                  "{,\"a\":1}",
                                  "{\"a\":1,,\"b\":2}",
                                  "{\"a\":1 \"b\":2}",
                                  "{\"a\":1]",
                                  "{\"a\":[}",
                                  "{null:1}",
                                  "{\"a\":1}}",
                                  "{{}}",
                                  "{[]}",
                                  "[{]}",
                                  "// a\n1",
                                  "1 /* a */",
                                  "#1",
                                  "\f1",
                                  "\v1",
                                  "\xC2\xA0"
                                  "1",
                                  "1\f",
                                  "<1>",
                                  "*",
                                  "@",
                                  "\x80",
                                  "\\u0031",
                                  "[\\n]",
                                  "\xEF\xBB\xBF"
                                  "1",
                                  ",",
                                  ":",
                                  "1,,",
                                  "$"};

TEST(jsonl_checks_the_grammar_of_values_that_it_skips)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!accepts(good[i])) fail_msg("%s: must be accepted: %s", good[i], status_message());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepts(bad[i])) fail_msg("%s: must be rejected", bad[i]);
}

TEST(jsonl_rejects_control_characters_anywhere_in_a_string)
{
    for (size_t at = 0; at < 40; at++)
        for (int c = 1; c < 0x22; c++) {
            char line[64];
            int len = snprintf(line, sizeof line, "{\"text\": \"%*s\"}", 40, "");
            struct text t = {0};
            line[10 + at] = (char)c;
            enum status st = jsonl_text(line, (size_t)len, "text", "a", &t);
            CHECK(st == (c < 0x20 ? STATUS_RECORD : STATUS_OK));
            text_release(&t);
        }
}

TEST(jsonl_limits_nesting_depth_but_not_length)
{
    enum { DEEP = 1000000 };
    struct text line = {0}, t = {0};
    for (int depth = 200; depth <= 201; depth++) {
        text_clear(&line);
        text_adds(&line, "{\"a\": ");
        for (int i = 0; i < depth; i++) text_adds(&line, "[");
        for (int i = 0; i < depth; i++) text_adds(&line, "]");
        text_adds(&line, ", \"text\": \"x\"}");
        if (depth == 200)
            check_text(line.data, "x");
        else
            check_rejected(line.data, "nested too deeply");
    }
    text_clear(&line);
    text_adds(&line, "{\"a\": ");
    for (int i = 0; i < DEEP; i++) text_adds(&line, "[");
    check_rejected(line.data, "nested too deeply");
    text_clear(&line);
    text_adds(&line, "{\"text\": \"");
    for (int i = 0; i < DEEP; i++) text_adds(&line, "\\\\");
    text_adds(&line, "\"}");
    CHECK_STATUS(OK, pull(line.data, "text", &t));
    CHECK(t.len == DEEP);
    text_release(&line), text_release(&t);
}

TEST(jsonl_never_reads_past_the_line)
{
    static const char whole[] = "{\"a\": [1, \"\\u00e9\"], \"text\": \"x\\ud83d\\ude00\"}";
    struct text t = {0};
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        char *cut = heap(len);
        memcpy(cut, whole, len);
        CHECK_STATUS(RECORD, jsonl_text(cut, len, "text", "cut", &t));
        free(cut);
    }
    text_release(&t);
}

static void check_joined(const char *line, const char *want)
{
    struct text t = {0};
    CHECK_STATUS(OK, pull(line, "files[].text", &t));
    bool same = t.len == strlen(want) && (!t.len || !memcmp(t.data, want, t.len));
    if (!same) fail_msg("%s: %s", line, t.data);
    text_release(&t);
}

TEST(jsonl_joins_the_strings_of_a_list)
{
    struct text t = {0};
    check_joined("{\"files\": [{\"text\": \"a\\n\"}, {\"path\": \"x\", \"text\": \"b\"}]}",
                 "\n\na\n\n\nb");
    check_joined(
        "{\"files\": [{\"text\": null}, {\"path\": \"x\"}, {\"text\": \"\"}], \"text\": \"no\"}",
        "\n\n");
    check_joined("{\"n\": 1, \"files\" : [ ] }", "");
    check_joined("{\"files\": [{\"t\\u0065xt\": \"a\", \"t\\u0065\": [1]}]}", "\n\na");
    static const char *const wrong[][2] = {
        {"{\"files\": {\"text\": \"a\"}}", "is not a list"},
        {"{\"files\": [\"a\"]}", "not a JSON object"},
        {"{\"files\": [{\"text\": 1}]}", "is not a string"},
        {"{\"files\": [{\"text\": \"a\", \"text\": \"b\"}]}", "duplicate key"},
        {"{\"text\": \"a\"}", "no list"},
        {"{\"files\": [{\"text\": \"a\"} {}]}", "expected , or ]"},
        {"{\"files\": [{\"text\": \"a\"},]}", "expected a value"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(RECORD, pull(wrong[i][0], "files[].text", &t));
        CHECK_MESSAGE(wrong[i][1]);
    }
    text_release(&t);
}
