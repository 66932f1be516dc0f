// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/option.h"
#include "base/toml_parse.h"

#define SAMPLE_ENUM OPT(ENUM, shade, "half", 0, 0, (shade, SHADE, none, half, 2x, auto), "h")
#define OPT         OPT_ENUM
SAMPLE_ENUM
#undef OPT

struct sample {
    option_INT number;
    option_REAL share;
    option_BOOL on;
    option_AUTO maybe;
    option_TEXT name;
    option_WORD word;
    option_LIST list;
    option_WORD index;
    option_INTS ints;
#define OPT OPT_FIELD
    SAMPLE_ENUM
#undef OPT
};

static const struct option rows[] = {
#define ROW(...) OPT_ROW(struct sample, __VA_ARGS__)
    ROW(INT, number, 3, 1, 10, "steps", "h") ROW(REAL, share, 0.5, 0, 1, "", "h")
        ROW(BOOL, on, true, 0, 0, "", "h") ROW(AUTO, maybe, "auto", 0, 0, "", "h")
            ROW(TEXT, name, "x", 0, 0, "", "h") ROW(WORD, word, "ab", 0, 0, "ab|abc|c", "h")
                ROW(LIST, list, "", 0, 0, "names", "h") ROW(WORD, index, "b", 0, 0, "a|b-c|b", "h")
                    ROW(INTS, ints, "[]", 1, 9, "rows", "h")
#undef ROW
#define OPT(...) OPT_ROW(struct sample, __VA_ARGS__)
                        SAMPLE_ENUM
#undef OPT
};

static enum status set(int row, struct sample *s, const char *text)
{
    struct toml *keep;
    enum status st = option_set_text(&rows[row], s, text, &keep);
    if (!st) {
        struct text out = {0};
        option_write(&rows[row], s, &out);
        struct toml *again;
        CHECK_STATUS(OK, toml_parse_value(out.data, out.len, "again", &again));
        toml_free(again);
        text_release(&out);
    }
    option_release(&rows[row], s);
    toml_free(keep);
    return st;
}

TEST(options_accept_values_of_their_kind_only)
{
    static const struct {
        int row;
        const char *text;
        bool good;
    } cases[] = {
        {0, "10", true},      {0, "0", false},     {0, "11", false},      {0, "1.5", false},
        {0, "x", false},      {1, "1", true},      {1, "0.25", true},     {1, "nan", false},
        {1, "1.01", false},   {2, "true", true},   {2, "1", false},       {3, "auto", true},
        {3, "false", true},   {3, "maybe", false}, {4, "a b", true},      {4, "\"q\"", true},
        {5, "ab", true},      {5, "abc", true},    {5, "a", false},       {5, "", false},
        {6, "[\"a\"]", true}, {6, "a,b", true},    {6, "[1]", false},     {0, "", false},
        {7, "b-c", true},     {7, "b", true},      {7, "-", false},       {7, "1", false},
        {1, ".5", true},      {1, "1.", true},     {1, ".", false},       {2, "True", true},
        {2, "TRUE", false},   {3, "False", true},  {5, "Ab", true},       {5, "a_b", true},
        {5, "ab|abc", false}, {7, "b_c", false},   {5, "_", false},       {9, "half", true},
        {9, "2x", true},      {9, "2", false},     {9, "shade", false},   {8, "[1, 9]", true},
        {8, "1,9", true},     {8, "", true},       {8, "[10]", false},    {8, "0", false},
        {8, "[1.5]", false},  {8, "a", false},     {8, "[\"1\"]", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample s = {0};
        enum status st = set(cases[i].row, &s, cases[i].text);
        if ((st == STATUS_OK) != cases[i].good)
            fail_msg("%s = %s: %s", rows[cases[i].row].name, cases[i].text, status_name(st));
        if (st) CHECK_MESSAGE("expected ");
    }
}

TEST(option_text_that_is_not_utf8_is_named_as_such)
{
    struct sample s = {0};
    CHECK_STATUS(OK, set(4, &s, "caf\xC3\xA9"));
    CHECK_STATUS(CONFIG, set(4, &s, "caf\xE9"));
    CHECK_MESSAGE("expected text that is valid UTF-8");
}

TEST(option_allowed_lists_bounds_and_words)
{
    struct text t = {0};
    option_allowed(&rows[0], &t);
    CHECK(!strcmp(t.data, "a whole number (steps) from 1 to 10"));
    text_clear(&t);
    option_allowed(&rows[5], &t);
    CHECK(!strcmp(t.data, "ab, abc or c"));
    text_clear(&t);
    option_allowed(&rows[8], &t);
    CHECK(!strcmp(t.data, "an array of whole numbers (rows) from 1 to 9"));
    text_clear(&t);
    option_allowed(&rows[9], &t);
    CHECK(!strcmp(t.data, "none, half, 2x or auto"));
    struct option large = rows[0];
    large.most = 0x1p53;
    text_clear(&t);
    option_allowed(&large, &t);
    CHECK(!strcmp(t.data, "a whole number (steps) from 1 to 2^53"));
    text_release(&t);
}

TEST(enum_rows_declare_constants_in_the_order_of_the_words)
{
    static const char *const words[] = {"none", "half", "2x", "auto"};
    CHECK(SHADE_none == 0 && SHADE_half == 1 && SHADE_2x == 2 && SHADE_auto == 3);
    for (int i = 0; i < 4; i++) {
        struct sample s = {.shade = SHADE_none};
        struct text t = {0};
        struct toml *keep;
        CHECK_STATUS(OK, option_set_text(&rows[9], &s, words[i], &keep));
        toml_free(keep); /* the value does not borrow from it */
        CHECK((int)s.shade == i && !strcmp(shade_word(s.shade), words[i]));
        option_write(&rows[9], &s, &t);
        CHECK(t.data[0] == '"' && !strncmp(t.data + 1, words[i], strlen(words[i])));
        CHECK(t.len == strlen(words[i]) + 2);
        text_release(&t);
    }
}

TEST(word_rows_store_the_index)
{
    struct sample s = {0};
    struct toml *keep;
    CHECK_STATUS(OK, option_set_text(&rows[7], &s, "b-c", &keep));
    CHECK(s.index == 1);
    toml_free(keep);
}

TEST(words_are_read_in_any_case_and_written_in_theirs)
{
    static const char *const spellings[] = {"half", "Half", "HALF", "ha_lf"};
    for (int i = 0; i < 4; i++) {
        struct sample s = {0};
        struct text t = {0};
        struct toml *keep;
        CHECK_STATUS(OK, option_set_text(&rows[9], &s, spellings[i], &keep));
        option_write(&rows[9], &s, &t);
        CHECK(s.shade == SHADE_half && !strcmp(t.data, "\"half\""));
        toml_free(keep);
        text_release(&t);
    }
}

TEST(reals_round_trip)
{
    static const double values[] = {0.1, 1e-8, 3, 1.0 / 3, 6.02e23, 5e-324};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct sample s = {.share = values[i]};
        struct text t = {0};
        struct toml *v;
        option_write(&rows[1], &s, &t);
        CHECK_STATUS(OK, toml_parse_value(t.data, t.len, "v", &v));
        CHECK(v->kind == TOML_FLOAT && v->real == values[i]);
        toml_free(v);
        text_release(&t);
    }
}

TEST(arrays_of_whole_numbers_are_owned_and_written_back)
{
    struct sample s = {0};
    struct text t = {0};
    struct toml *keep;
    CHECK_STATUS(OK, option_set_text(&rows[8], &s, "3,1", &keep));
    toml_free(keep); /* the value does not borrow from it */
    CHECK(s.ints.count == 2 && s.ints.items[0] == 3 && s.ints.items[1] == 1);
    option_write(&rows[8], &s, &t);
    CHECK(!strcmp(t.data, "[3, 1]"));
    CHECK_STATUS(OK, option_set_text(&rows[8], &s, "[]", &keep)); /* replaces the array */
    toml_free(keep);
    CHECK(s.ints.count == 0);
    option_release(&rows[8], &s);
    text_release(&t);
}
