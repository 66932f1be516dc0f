// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/steps.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"

static enum status take(void *context, const unsigned char *bytes, size_t len)
{
    struct text *out = context;
    if (!len) return STATUS_OK;
    text_add(out, bytes, len);
    text_adds(out, "|");
    return STATUS_OK;
}

/* Takes the steps over; the pieces, each with a bar behind it. */
static bool pieces(struct steps *s, const char *text, const char *want)
{
    struct steps_work w;
    struct text got = {0};
    text_adds(&got, "");
    steps_work_init(&w, s);
    CHECK_STATUS(OK, steps_run(&w, (const unsigned char *)text, strlen(text), take, &got));
    bool same = !strcmp(got.data, want);
    if (!same) print_error("\"%s\", not \"%s\"\n", got.data, want);
    steps_work_release(&w);
    steps_release(s);
    text_release(&got);
    return same;
}

static bool cut(struct step step, const char *text, const char *want)
{
    struct steps s = {.all = {step}, .count = 1};
    return pieces(&s, text, want);
}

static char *string(const char *text) { return heap_string(text, strlen(text)); }

TEST(a_behavior_says_what_becomes_of_matches)
{
    static const struct {
        enum step_behavior behavior;
        bool inverted;
        const char *want;
    } rows[] = {
        {STEP_ISOLATED, false, "-|-|ab|-|c|-|-|"},
        {STEP_REMOVED, false, "ab|c|"},
        {STEP_REMOVED, true, "-|-|-|-|-|"},
        {STEP_CONTIGUOUS, false, "--|ab|-|c|--|"},
        {STEP_MERGED_WITH_PREVIOUS, false, "-|-|ab-|c-|-|"},
        {STEP_MERGED_WITH_PREVIOUS, true, "-|-ab|-c|-|-|"},
        {STEP_MERGED_WITH_NEXT, false, "-|-ab|-c|-|-|"},
        {STEP_MERGED_WITH_NEXT, true, "-|-|ab-|c-|-|"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct step s = {
            .string = string("-"), .behavior = rows[i].behavior, .inverted = rows[i].inverted};
        CHECK(cut(s, "--ab-c--", rows[i].want));
    }
}

TEST(matches_are_of_strings_characters_patterns_and_splitters)
{
    struct regex *r;
    CHECK(cut((struct step){.string = string("aa")}, "aaaxa", "aa|axa|"));
    CHECK(cut((struct step){.marks = UNICODE_DIGIT}, "a12\xC2\xB2 \xB2", "a|1|2|\xC2\xB2| \xB2|"));
    CHECK(cut((struct step){.marks = UNICODE_PUNCTUATION, .behavior = STEP_CONTIGUOUS}, "a!?b",
              "a|!?|b|"));
    CHECK_STATUS(OK, regex_compile(&r, "[0-9]{2}"));
    CHECK(cut((struct step){.regex = r}, "12345a67", "12|34|5a|67|"));
    CHECK(cut((struct step){.split = split_gpt2}, "it's 1", "it|'s| 1|"));
    CHECK(cut((struct step){.string = string("x")}, "", ""));
}

TEST(a_step_sees_only_what_the_one_before_left)
{
    struct steps s = {.count = 2};
    CHECK_STATUS(OK, regex_compile(&s.all[0].regex, "[0-9]"));
    s.all[1].split = split_gpt2;
    CHECK(pieces(&s, "a  1  b", "a|  |1| | b|"));
}

TEST(a_step_may_see_the_letters_of_bytes)
{
    struct steps s = {.count = 2};
    s.all[0] = (struct step){.marks = UNICODE_DIGIT, .spelt = true};
    CHECK_STATUS(OK, regex_compile(&s.all[1].regex, "\xC4\xA0"
                                                    "b")); /* a space, spelt */
    s.all[1].spelt = true;
    /* the second byte of U+00F2 is the letter of a superscript */
    CHECK(pieces(&s, "\xC3\xB2x a b", "\xC3|\xB2|x a| b|"));
}

TEST(a_space_is_added_where_there_is_none)
{
    struct steps s = {.count = 2};
    s.all[0].string = string("-");
    s.all[1] = (struct step){.split = split_gpt2, .adds_space = true};
    CHECK(pieces(&s, "a- b-\tc", " a| -| b| -| |\t|c|"));
    s = (struct steps){.count = 1};
    s.all[0].adds_space = true;
    CHECK(pieces(&s, "a b", " a b|"));
    s = (struct steps){.count = 1};
    s.all[0].adds_space = true;
    CHECK(pieces(&s, " a", " a|"));
}
