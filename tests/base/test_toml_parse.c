// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/toml_parse.h"

static struct toml *parse(const char *text)
{
    struct toml *t;
    CHECK_STATUS(OK, toml_parse(text, strlen(text), "test.toml", &t));
    return t;
}

TEST(toml_parses_every_kind_of_value)
{
    struct toml *t = parse("s = \"a\\tb\\u00E9\"\nl = 'C:\\x'\nm = \"\"\"\none \\\n   two\"\"\"\n"
                           "i = -1_000\nh = 0xDEAD_beef\no = 0o17\nb = 0b101\nf = 6.5e-3\n"
                           "inf = -inf\nt = true\nd = 1979-05-27 07:32:00z\nlt = 07:32:00.5\n"
                           "a = [1, [\"x\"],\n # why\n 2,]\np = { x = 1, y.z = 2 }\n");
    CHECK(!strcmp(toml_get(t, "s")->text, "a\tb\xC3\xA9"));
    CHECK(!strcmp(toml_get(t, "l")->text, "C:\\x"));
    CHECK(!strcmp(toml_get(t, "m")->text, "one two"));
    CHECK(toml_get(t, "i")->integer == -1000 && toml_get(t, "h")->integer == 0xDEADBEEF);
    CHECK(toml_get(t, "o")->integer == 15 && toml_get(t, "b")->integer == 5);
    CHECK(toml_get(t, "f")->real == 6.5e-3 && toml_get(t, "inf")->real == -(double)INFINITY);
    CHECK(toml_get(t, "t")->boolean && toml_get(t, "d")->kind == TOML_DATETIME);
    CHECK(!strcmp(toml_get(t, "d")->text, "1979-05-27T07:32:00Z"));
    CHECK(toml_get(t, "lt")->kind == TOML_TIME_LOCAL);
    CHECK(toml_get(t, "a")->count == 3 && toml_get(t, "a")->first->next->kind == TOML_ARRAY);
    CHECK(toml_get(toml_get(toml_get(t, "p"), "y"), "z")->integer == 2);
    toml_free(t);
}

TEST(toml_nests_tables_and_arrays_of_tables)
{
    struct toml *t =
        parse("[a.b]\nx = 1\n[a]\ny = 2\n[[s]]\nn = 1\n[s.sub]\nk = 1\n[[s]]\nn = 2\n");
    CHECK(toml_get(toml_get(toml_get(t, "a"), "b"), "x")->integer == 1);
    const struct toml *s = toml_get(t, "s");
    CHECK(s->count == 2 && toml_get(s->first, "sub") && toml_get(s->last, "n")->integer == 2);
    toml_free(t);
}

TEST(toml_errors_name_line_column_and_reason)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a = 1\nb = 01\n", "test.toml:2:5: \"01\""},
        {"\xEF\xBB\xBFx = 01\n", "test.toml:1:5: \"01\""},
        {"a = 1\na = 2\n", "test.toml:2:3: \"a\" is already defined, on line 1"},
        {"a = \"x\n", "unterminated string: no closing quote on this line"},
        {"[a]\n[a]\n", "already defined"},
        {"a = [1 2]\n", "expected , or ]"},
        {"a.b = 1\n[a]\n", "already defined"},
        {"a = { b = 1 }\na.c = 2\n", "already defined"},
        {"a = 1 b = 2\n", "expected the end of the line"},
        {"= 1\n", "expected a key"},
        {"a = 9223372036854775808\n", "64 bits"},
        {"a = 2023-02-29\n", "not a valid TOML value"},
        {"a = \"\\uD800\"\n", "scalar"},
        {"a = 1 # \x01\n", "control character"},
        {"a = 1__0\n", "not a valid TOML value"},
        {"a = 1.\n", "not a valid TOML value"},
        {"a = truE\n", "not a valid TOML value"},
        {"a = \"\"\"x\n", "unterminated string at the end"},
        {"\"\"\"a\"\"\" = 1\n", "key"},
        {"a = '\xFF'\n", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct toml *t;
        CHECK_STATUS(DATA, toml_parse(cases[i].text, strlen(cases[i].text), "test.toml", &t));
        CHECK_MESSAGE(cases[i].message);
    }
}

TEST(toml_truncated_at_any_byte_is_parsed_or_rejected)
{
    static const char whole[] = "[a]\nb = [1, \"x\\u00e9\", { c = 2020-01-02 }]\n"
                                "\"d e\".f = \"\"\"y\nz\"\"\" # g\n[[h]]\ni = -1.5e3\n";
    struct toml *t;
    int rejected = 0;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        char *cut =
            heap_grow(NULL, len + !len, 1); /* of exact length, so the sanitizer sees overreads */
        memcpy(cut, whole, len);
        enum status st = toml_parse(cut, len, "cut.toml", &t);
        CHECK(!st || st == STATUS_DATA);
        if (st) CHECK_MESSAGE("cut.toml:");
        if (!st) toml_free(t);
        rejected += st != STATUS_OK;
        free(cut);
    }
    CHECK(rejected > 60);
}

TEST(toml_nesting_depth_is_limited)
{
    enum { DEEP = 5000 };
    char deep[DEEP + 8] = "a = ", dots[2 * DEEP + 8];
    struct toml *t;
    memset(deep + 4, '[', DEEP);
    CHECK_STATUS(DATA, toml_parse(deep, DEEP + 4, "deep", &t));
    CHECK_MESSAGE("nested more than");
    for (int i = 0; i < DEEP; i++) memcpy(dots + 2 * i, "a.", 2);
    memcpy(dots + 2 * DEEP, "a=1", 3);
    CHECK_STATUS(DATA, toml_parse(dots, 2 * DEEP + 3, "dots", &t));
    CHECK_MESSAGE("parts");
}

TEST(toml_parses_a_single_value)
{
    struct toml *t;
    CHECK_STATUS(OK, toml_parse_value(" [1, 2] ", 8, "value", &t));
    CHECK(t->kind == TOML_ARRAY && t->count == 2);
    toml_free(t);
    CHECK_STATUS(DATA, toml_parse_value("1 2", 3, "value", &t));
    CHECK_STATUS(DATA, toml_parse_value("", 0, "value", &t));
}

/* toml-test's expected output: leaves are {"type": ..., "value": ...}. */
static bool same(const struct toml *t, const struct json *want);

static bool same_leaf(const struct toml *t, const char *type, const char *value)
{
    static const char *const names[] = {
        [TOML_STRING] = "string",         [TOML_INTEGER] = "integer",
        [TOML_FLOAT] = "float",           [TOML_BOOL] = "bool",
        [TOML_DATETIME] = "datetime",     [TOML_DATETIME_LOCAL] = "datetime-local",
        [TOML_DATE_LOCAL] = "date-local", [TOML_TIME_LOCAL] = "time-local",
        [TOML_ARRAY] = "array",           [TOML_TABLE] = "table"};
    if (strcmp(names[t->kind], type)) return false;
    if (t->kind == TOML_STRING) return strlen(value) == t->len && !strcmp(value, t->text);
    if (t->kind == TOML_INTEGER) return strtoll(value, NULL, 10) == t->integer;
    if (t->kind == TOML_BOOL) return !strcmp(value, "true") == t->boolean;
    if (t->kind != TOML_FLOAT) { /* fractions of a second may be written longer or shorter */
        size_t n = strcspn(value, ".");
        return !strncmp(value, t->text, n) && n >= strcspn(t->text, ".") - 6;
    }
    if (strstr(value, "nan")) return isnan(t->real);
    return strtod(value, NULL) == t->real;
}

static bool same(const struct toml *t, const struct json *want)
{
    const struct json *type = json_get(want, "type"), *value = json_get(want, "value");
    if (json_is_object(want) && json_count(want) == 2 && json_is_string(type) &&
        json_is_string(value))
        return same_leaf(t, json_string(type), json_string(value));
    if (json_count(want) != t->count) return false;
    if (json_is_array(want)) {
        const struct toml *item = t->first;
        if (t->kind != TOML_ARRAY) return false;
        for (const struct json *v = json_first(want); v; v = json_next(v), item = item->next)
            if (!same(item, v)) return false;
        return true;
    }
    for (const struct json *v = json_first(want); v; v = json_next(v)) {
        const struct toml *member = toml_get(t, json_key(v));
        if (!member || !same(member, v)) return false;
    }
    return t->kind == TOML_TABLE;
}

static void run_case(const char *folder, const char *name, int counts[2])
{
    char *path = file_join(folder, name);
    struct text bytes = {0};
    struct toml *t = NULL;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    enum status st = toml_parse(bytes.data, bytes.len, name, &t);
    bool good = !strncmp(name, "valid/", 6) ? !st : st == STATUS_DATA;
    if (!st && good) {
        struct json *want;
        strcpy(path + strlen(path) - 4, "json");
        if (json_read(path, 1 << 20, &want) == STATUS_OK) {
            good = same(t, want);
            json_free(want);
        }
    }
    counts[good]++;
    if (!good) print_error("  %s: %s\n", name, st ? status_message() : "was accepted, or differs");
    toml_free(t);
    text_release(&bytes);
    free(path);
}

/* LLAMERO_TOML_TEST is the folder `tests` of github.com/toml-lang/toml-test. */
TEST(toml_passes_the_conformance_suite_if_available)
{
    const char *folder = getenv("LLAMERO_TOML_TEST");
    int counts[2] = {0};
    struct text list = {0};
    if (!folder) return;
    char *path = file_join(folder, "files-toml-1.0.0"), *next;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &list));
    for (char *name = strtok_r(list.data, "\n", &next); name; name = strtok_r(NULL, "\n", &next))
        if (strlen(name) > 5 && !strcmp(name + strlen(name) - 5, ".toml"))
            run_case(folder, name, counts);
    print_message("  toml-test 1.0.0: %d right, %d wrong\n", counts[1], counts[0]);
    CHECK(counts[1] > 500 && counts[0] == 0);
    text_release(&list);
    free(path);
}
