// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"

static enum status append_piece(void *context, const unsigned char *bytes, size_t len)
{
    struct text *out = context;
    if (!len) return STATUS_OK;
    text_add(out, bytes, len);
    text_adds(out, "|");
    return STATUS_OK;
}

/* Whether the pieces, each followed by a bar, equal `want`.  Releases the pre_tokenizer. */
static bool pieces(struct pre_tokenizer *s, const char *text, const char *want)
{
    struct pre_tokenizer_scratch w;
    struct text got = {0};
    text_adds(&got, "");
    pre_tokenizer_scratch_init(&w, s);
    CHECK_STATUS(
        OK, pre_tokenizer_run(&w, (const unsigned char *)text, strlen(text), append_piece, &got));
    bool same = !strcmp(got.data, want);
    if (!same) print_error("\"%s\", not \"%s\"\n", got.data, want);
    pre_tokenizer_scratch_release(&w);
    pre_tokenizer_release(s);
    text_release(&got);
    return same;
}

static bool cut(struct split_rule step, const char *text, const char *want)
{
    struct pre_tokenizer s = {.rules = {step}, .count = 1};
    return pieces(&s, text, want);
}

TEST(pre_tokenizer_follows_each_split_behavior)
{
    static const struct {
        enum split_behavior behavior;
        bool invert;
        const char *want;
    } rows[] = {
        {SPLIT_ISOLATED, false, "-|-|ab|-|c|-|-|"},
        {SPLIT_REMOVED, false, "ab|c|"},
        {SPLIT_REMOVED, true, "-|-|-|-|-|"},
        {SPLIT_CONTIGUOUS, false, "--|ab|-|c|--|"},
        {SPLIT_MERGED_WITH_PREVIOUS, false, "-|-|ab-|c-|-|"},
        {SPLIT_MERGED_WITH_PREVIOUS, true, "-|-ab|-c|-|-|"},
        {SPLIT_MERGED_WITH_NEXT, false, "-|-ab|-c|-|-|"},
        {SPLIT_MERGED_WITH_NEXT, true, "-|-|ab-|c-|-|"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct split_rule s = {
            .string = heap_strdup("-"), .behavior = rows[i].behavior, .invert = rows[i].invert};
        CHECK(cut(s, "--ab-c--", rows[i].want));
    }
}

TEST(pre_tokenizer_matches_strings_marks_patterns_and_splitters)
{
    struct regex *r;
    CHECK(cut((struct split_rule){.string = heap_strdup("aa")}, "aaaxa", "aa|axa|"));
    CHECK(cut((struct split_rule){.marks = UNICODE_DIGIT}, "a12\xC2\xB2 \xB2",
              "a|1|2|\xC2\xB2| \xB2|"));
    CHECK(cut((struct split_rule){.marks = UNICODE_PUNCTUATION, .behavior = SPLIT_CONTIGUOUS},
              "a!?b", "a|!?|b|"));
    CHECK_STATUS(OK, regex_compile(&r, "[0-9]{2}"));
    CHECK(cut((struct split_rule){.regex = r}, "12345a67", "12|34|5a|67|"));
    CHECK(cut((struct split_rule){.split = split_gpt2}, "it's 1", "it|'s| 1|"));
    CHECK(cut((struct split_rule){.string = heap_strdup("x")}, "", ""));
}

TEST(pre_tokenizer_rules_see_the_pieces_of_the_previous_rule)
{
    struct pre_tokenizer s = {.count = 2};
    CHECK_STATUS(OK, regex_compile(&s.rules[0].regex, "[0-9]"));
    s.rules[1].split = split_gpt2;
    CHECK(pieces(&s, "a  1  b", "a|  |1| | b|"));
}

TEST(pre_tokenizer_rules_can_match_in_the_byte_alphabet)
{
    struct pre_tokenizer s = {.count = 2};
    s.rules[0] = (struct split_rule){.marks = UNICODE_DIGIT, .in_byte_alphabet = true};
    CHECK_STATUS(OK, regex_compile(&s.rules[1].regex,
                                   "\xC4\xA0"
                                   "b")); /* U+0120 is the space of the byte-level alphabet */
    s.rules[1].in_byte_alphabet = true;
    /* the second byte of U+00F2 is 0xB2, which is a superscript two in the alphabet */
    CHECK(pieces(&s, "\xC3\xB2x a b", "\xC3|\xB2|x a| b|"));
}

TEST(pre_tokenizer_adds_a_missing_prefix_space)
{
    struct pre_tokenizer s = {.count = 2};
    s.rules[0].string = heap_strdup("-");
    s.rules[1] = (struct split_rule){.split = split_gpt2, .adds_prefix_space = true};
    CHECK(pieces(&s, "a- b-\tc", " a| -| b| -| |\t|c|"));
    s = (struct pre_tokenizer){.count = 1};
    s.rules[0].adds_prefix_space = true;
    CHECK(pieces(&s, "a b", " a b|"));
    s = (struct pre_tokenizer){.count = 1};
    s.rules[0].adds_prefix_space = true;
    CHECK(pieces(&s, " a", " a|"));
}
