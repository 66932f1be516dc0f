// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct json *parse(const char *text)
{
    struct json *root = NULL;
    CHECK_STATUS(OK, json_parse(text, strlen(text), "test", &root));
    return root;
}

TEST(json_members_are_found_by_name_and_in_order)
{
    struct json *root = parse(" {\"a\": [1, 2.5, -3e2], \"b\": {\"c\": \"x\"}, \"d\": true,"
                              " \"e\": null} \n");
    const struct json *a = json_get(root, "a"), *b = json_get(root, "b");
    CHECK(json_is_object(root) && json_count(root) == 4 && json_is_array(a));
    CHECK(json_count(a) == 3 && json_number(json_next(json_first(a))) == 2.5);
    CHECK(!strcmp(json_key(b), "b") && !strcmp(json_string(json_get(b, "c")), "x"));
    CHECK(json_is_bool(json_get(root, "d")) && json_true(json_get(root, "d")));
    CHECK(json_is_null(json_get(root, "e")));
    CHECK(!json_get(root, "A") && !json_get(a, "a") && !json_get(NULL, "a"));
    CHECK(!json_is_string(NULL) && !json_is_number(NULL) && json_count(NULL) == 0);
    json_free(root);
}

/* RFC 8259 allows them; a C string cannot hold a NUL. */
TEST(json_escaped_nuls_become_two_bytes)
{
    static const char text[] =
        "{\"\\u0000\": 1, \"\": 2, \"a\": [\"x\\u0000y\\\\u0000\"],\"b\":3 }";
    struct json *root = NULL;
    CHECK_STATUS(OK, json_parse(text, sizeof text - 1, "nul.json", &root));
    CHECK(!strcmp(json_key(json_first(root)), "\xC0\x80") && json_count(root) == 4);
    CHECK(!strcmp(json_string(json_first(json_get(root, "a"))), "x\xC0\x80y\\u0000"));
    CHECK(json_number(json_get(root, "b")) == 3);
    json_free(root);
    CHECK_STATUS(DATA, json_parse("[\"\\u0000\", ?]", 13, "nul.json", &root));
    CHECK_MESSAGE("near byte 11");
    CHECK_STATUS(DATA, json_parse("[\\u0000]", 8, "nul.json", &root));
}

TEST(json_parse_rejects_what_is_not_strict_json)
{
    static const char *const wrong[] = {
        "",
        "{",
        "{\"a\": 1,}",
        "[1 2]",
        "{\"a\": 1} x",
        "{\"a\": 1, \"a\": 2}",
        "[{\"b\": {\"a\": 1, \"c\": 0, \"a\": 2}}]",
        "[\"\\u00)9\"]",
        "[\"\\u12\"]",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "{'a': 1}",
        "nul",
        "[01]",
        "[-01]",
        "[-]",
        "[1.]",
        "[-.5]",
        "[2.e3]",
        "[1e]",
        "[1e+]",
        "[\"a\tb\"]",
        "[\"a\nb\"]",
        "[1,\f2]",
        "[\v]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json *root = NULL;
        CHECK_STATUS(DATA, json_parse(wrong[i], strlen(wrong[i]), "bad.json", &root));
        CHECK(!root);
        CHECK_MESSAGE("bad.json: ");
    }
    struct json *root = NULL;
    CHECK_STATUS(DATA, json_parse("[1\0]", 4, "bad.json", &root));
}

TEST(json_parse_names_what_cjson_would_accept)
{
    static const char *const wrong[][2] = {{"[1, -012]", "byte 4: malformed number"},
                                           {"[\"\\\\\", \"\a\"]", "byte 8: control character"},
                                           {"[\"\\u12x4\"]", "byte 2: malformed \\u escape"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json *root = NULL;
        CHECK_STATUS(DATA, json_parse(wrong[i][0], strlen(wrong[i][0]), "bad.json", &root));
        CHECK_MESSAGE(wrong[i][1]);
    }
    json_free(parse("\t[0, -0, 0.0, -0.5e-07, 1E+2, \"01 -. 2.e\", \"\\\"\\t\x7f\"]\r\n"));
}

TEST(json_truncated_at_any_byte_is_rejected)
{
    static const char whole[] = "{\"a\": [1, -2.5e3, \"\\u00e9\\n\"], \"b\": {\"c\": null}, "
                                "\"d\": true}";
    struct json *root;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        char *cut =
            heap_grow(NULL, len + !len, 1); /* of exact length, so the sanitizer sees overreads */
        memcpy(cut, whole, len);
        CHECK_STATUS(DATA, json_parse(cut, len, "cut.json", &root));
        CHECK_MESSAGE("cut.json: not valid JSON");
        free(cut);
    }
}

TEST(json_nesting_depth_is_limited)
{
    enum { DEEP = 100000 };
    char *text = heap(DEEP + 1);
    struct json *root = NULL;
    memset(text, '[', DEEP);
    CHECK_STATUS(DATA, json_parse(text, DEEP, "deep", &root));
    free(text);
}

TEST(json_integers_are_exact_and_in_bounds_or_rejected)
{
    struct json *root =
        parse("{\"big\": 9007199254740991, \"bigger\": 9007199254740992, \"half\": 1.5,"
              " \"word\": \"7\", \"less\": -1}");
    int64_t x = 0;
    CHECK_STATUS(OK, json_get_int(root, "big", 0, INT64_MAX, &x));
    CHECK(x == ((int64_t)1 << 53) - 1);
    CHECK_STATUS(DATA, json_get_int(root, "bigger", 0, INT64_MAX, &x));
    CHECK_STATUS(DATA, json_get_int(root, "half", 0, 9, &x));
    CHECK_STATUS(DATA, json_get_int(root, "word", 0, 9, &x));
    CHECK_STATUS(DATA, json_get_int(root, "less", 0, 9, &x));
    CHECK_MESSAGE("\"less\" must be a whole number from 0 to 9");
    CHECK_STATUS(DATA, json_get_int(root, "less", 2, 2, &x));
    CHECK_MESSAGE("\"less\" must be 2");
    CHECK_STATUS(DATA, json_get_int(root, "none", 0, 9, &x));
    CHECK_MESSAGE("\"none\" is missing");
    const char *word = NULL;
    CHECK_STATUS(OK, json_get_string(root, "word", &word));
    CHECK(!strcmp(word, "7"));
    CHECK_STATUS(DATA, json_get_string(root, "big", &word));
    json_free(root);
}

TEST(json_quoted_strings_read_back)
{
    char all[256];
    for (int i = 1; i < 128; i++) all[i - 1] = (char)i;
    strcpy(all + 127, "\xc3\xa9\xf0\x9f\xa6\x99");
    struct text t = {0};
    json_quote(&t, all);
    struct json *root = parse(t.data);
    CHECK(!strcmp(json_string(root), all));
    json_free(root);
    text_release(&t);
}

TEST(json_reals_read_back_to_the_same_bits)
{
    static const double values[] = {0.1, 1.0 / 3, 6.02214076e23, 5e-324, -1.7976931348623157e308};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct text t = {0};
        json_real(&t, values[i]);
        CHECK(strtod(t.data, NULL) == values[i]);
        text_release(&t);
    }
    struct text t = {0};
    json_real(&t, NAN);
    json_real(&t, INFINITY);
    CHECK(!strcmp(t.data, "nullnull"));
    text_release(&t);
}

TEST(json_read_enforces_a_size_limit)
{
    struct json *root = NULL;
    char *path = file_join(test_folder(), "x.json");
    CHECK_STATUS(OK, file_write(path, "[1, 2]", 6));
    CHECK_STATUS(OK, json_read(path, 6, &root));
    CHECK(json_count(root) == 2);
    json_free(root);
    CHECK_STATUS(DATA, json_read(path, 5, &root));
    CHECK_MESSAGE("x.json: 6 bytes, more than the 5 allowed");
    free(path);
}

TEST(json_string_is_compares_strings_and_is_false_for_other_values)
{
    struct json *root = parse("{\"a\": \"x\", \"b\": 1}");
    CHECK(json_string_is(json_get(root, "a"), "x") && !json_string_is(json_get(root, "a"), "xy"));
    CHECK(!json_string_is(json_get(root, "b"), "1") && !json_string_is(json_get(root, "c"), ""));
    json_free(root);
}

TEST(json_quote_replaces_invalid_utf8)
{
    struct text t = {0};
    json_quote(&t, "a\xff\xc3\xa9\xe2\x82z");
    struct json *root = parse(t.data);
    CHECK(!strcmp(json_string(root), "a\ufffd\u00e9\ufffd\ufffdz"));
    json_free(root);
    text_release(&t);
}

TEST(json_member_text_is_the_values_own_text)
{
    static const char object[] =
        " {\"a\" : 1.50 ,\"b\\\"\": \"}\\\",\", \"c\":\n"
        "{\"train\": [1, {\"x\": \"]\"}] },\"train\":[ 2,\n3]\n, \"n\":null}\n";
    static const char *const members[][2] = {{"a", "1.50"},
                                             {"c", "{\"train\": [1, {\"x\": \"]\"}] }"},
                                             {"train", "[ 2,\n3]"},
                                             {"n", "null"}};
    json_free(parse(object));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct text t = {0};
        CHECK(json_member_text(object, members[i][0], &t));
        CHECK(!strcmp(t.data, members[i][1]));
        text_release(&t);
    }
    struct text none = {0};
    CHECK(!json_member_text(object, "x", &none) && !json_member_text("{ }", "a", &none));
    CHECK(!none.len);
}

TEST(json_quote_and_json_real_round_trip_random_input)
{
    for (uint64_t round = 0; round < 3000; round++) {
        char bytes[65] = "";
        struct text t = {0};
        uint64_t len = rng_below(64, 1, RNG_TEST, round, 0), bits;
        for (uint64_t i = 0; i < len; i++)
            bytes[i] = (char)(1 + rng_below(255, 1, RNG_TEST, round, 1 + i));
        struct rng_block b = rng_bits(1, RNG_TEST, round, 100);
        bits = (uint64_t)b.bits[0] << 32 | b.bits[1];
        double real;
        memcpy(&real, &bits, sizeof real);
        text_adds(&t, "{");
        json_quote(&t, bytes);
        text_adds(&t, ":[");
        json_real(&t, real);
        text_adds(&t, "]}");
        struct json *root = parse(t.data);
        const struct json *member = json_first(root), *value = json_first(member);
        if (text_is_utf8(bytes, len)) CHECK(!strcmp(json_key(member), bytes));
        if (isfinite(real))
            CHECK(json_number(value) == real);
        else
            CHECK(json_is_null(value));
        json_free(root);
        text_release(&t);
    }
}

static void write_layouts(struct json_writer *w, enum json_layout layout)
{
    json_begin_object(w, NULL, layout);
    json_write_int(w, "a", INT64_MIN);
    json_begin_array(w, "b", JSON_COMPACT);
    json_write_bool(w, NULL, true);
    json_write_null(w, NULL);
    json_end_array(w);
    json_write_key(w, "c");
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "d \"e\"", "f\n");
    json_write_string(w, "g", NULL);
    json_end_object(w);
    json_begin_array(w, "h", layout);
    json_end_array(w);
    json_end_object(w);
    json_finish(w);
}

static void check_layout(enum json_layout layout, const char *expected)
{
    struct text t = {0};
    write_layouts(&(struct json_writer){.text = &t}, layout);
    CHECK(!strcmp(t.data, expected));
    json_free(parse(t.data));
    text_release(&t);
}

TEST(json_writer_places_commas_and_white_space_by_layout)
{
    check_layout(JSON_COMPACT, "{\"a\":-9223372036854775808,\"b\":[true,null],"
                               "\"c\":{\"d \\\"e\\\"\": \"f\\n\", \"g\": null},\"h\":[]}");
    check_layout(JSON_INLINE, "{\"a\": -9223372036854775808, \"b\": [true,null], "
                              "\"c\": {\"d \\\"e\\\"\": \"f\\n\", \"g\": null}, \"h\": []}");
    check_layout(JSON_LINES, "{\n  \"a\": -9223372036854775808,\n  \"b\": [true,null],\n"
                             "  \"c\": {\"d \\\"e\\\"\": \"f\\n\", \"g\": null},\n"
                             "  \"h\": [\n  ]\n}");
}

TEST(json_newline_breaks_the_line_before_the_next_element)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_begin_array(&w, "files", JSON_INLINE);
    for (int i = 0; i < 2; i++) {
        json_newline(&w, i);
        json_write_format(&w, NULL, "\"%08x\"", i);
    }
    json_newline(&w, 0);
    json_end_array(&w);
    json_newline(&w, 3);
    json_write_raw(&w, "raw", "{\"x\":1}");
    json_write_real(&w, "y", 0.1);
    json_write_real(&w, "z", INFINITY);
    json_write_format(&w, "inf", "%.9g", -INFINITY);
    json_write_format(&w, "nan", "%.9g", NAN);
    json_write_int_or_null(&w, "m", 0);
    json_write_int_or_null(&w, "n", -1);
    json_end_object(&w);
    json_finish(&w);
    CHECK(!strcmp(t.data, "{\"files\": [\n\"00000000\",\n \"00000001\"\n],\n   "
                          "\"raw\": {\"x\":1}, \"y\": 0.10000000000000001, \"z\": null, "
                          "\"inf\": null, \"nan\": null, "
                          "\"m\": 0, \"n\": null}"));
    json_free(parse(t.data));
    text_release(&t);
}

static void value_without_key(struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, NULL, 1);
}

static void key_in_array(struct json_writer *w)
{
    json_begin_array(w, NULL, JSON_INLINE);
    json_write_int(w, "a", 1);
}

static void key_without_value(struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_key(w, "a");
    json_end_object(w);
}

static void two_keys(struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_key(w, "a");
    json_write_int(w, "b", 1);
}

static void wrong_end(struct json_writer *w)
{
    json_begin_array(w, NULL, JSON_INLINE);
    json_end_object(w);
}

static void end_of_nothing(struct json_writer *w) { json_end_array(w); }

static void two_roots(struct json_writer *w)
{
    json_write_int(w, NULL, 1);
    json_write_int(w, NULL, 2);
}

static void too_deep(struct json_writer *w)
{
    for (int i = 0; i <= JSON_MAX_DEPTH; i++) json_begin_array(w, NULL, JSON_INLINE);
}

static void unfinished(struct json_writer *w)
{
    json_begin_array(w, NULL, JSON_INLINE);
    json_finish(w);
}

static void nothing_written(struct json_writer *w) { json_finish(w); }

TEST(json_writer_misuse_is_a_bug)
{
    static void (*const misuses[])(struct json_writer *) = {
        value_without_key, key_in_array, key_without_value, two_keys,   wrong_end,
        end_of_nothing,    two_roots,    too_deep,          unfinished, nothing_written};
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        int code;
        pid_t child = fork();
        if (!child) {
            struct text t = {0};
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            close(STDERR_FILENO);
            misuses[i](&(struct json_writer){.text = &t});
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &code, 0) == child);
        CHECK(WIFSIGNALED(code) && WTERMSIG(code) == SIGABRT);
    }
}

TEST(json_library_has_a_version)
{
    CHECK(json_library_version()[0] >= '1' && strchr(json_library_version(), '.'));
}

TEST(json_reads_a_checksummed_file_only_unchanged)
{
    const char *path = test_path(test_folder(), "a.json");
    struct text t = {0};
    struct json_writer w = {.text = &t};
    struct json *root;
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "name", "a\n\"crc\": \"no\"");
    json_write_int(&w, "count", 7);
    json_end_checksummed(&w, "crc");
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK_STATUS(OK, json_read_checksummed(path, 1 << 10, "crc", &root));
    CHECK(json_number(json_get(root, "count")) == 7);
    json_free(root);
    for (size_t i = 0; i < t.len; i++) {
        t.data[i] ^= 1;
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK_STATUS(DATA, json_read_checksummed(path, 1 << 10, "crc", &root));
        CHECK_MESSAGE(path);
        t.data[i] ^= 1;
        CHECK_STATUS(OK, file_write(path, t.data, i));
        CHECK_STATUS(DATA, json_read_checksummed(path, 1 << 10, "crc", &root));
    }
    text_release(&t);
}

TEST(a_string_without_an_end_is_malformed_after_an_escaped_nul_too)
{
    static const char *const lines[] = {"{\"a\":\"\\u0000\\\"}", "{\"a\":\"\\u0000\\\\\\\"}",
                                        "[\"\\u0000\\u0000bcdef\\\"]"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct json *root;
        CHECK_STATUS(DATA, json_parse(lines[i], strlen(lines[i]), "t", &root));
        CHECK(!root);
    }
}
