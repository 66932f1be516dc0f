// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/char_bpe.h"

static void add(struct vocabulary *v, const char *token)
{
    CHECK_STATUS(OK, vocabulary_add(v, token, strlen(token), v->count));
}

static bool normal_is(const struct char_bpe *s, const char *text, bool first, const char *want)
{
    struct text got = {0};
    text_adds(&got, "");
    char_bpe_normalize(s, (const unsigned char *)text, strlen(text), first, &got);
    bool same = !strcmp(got.data, want);
    text_release(&got);
    return same;
}

TEST(char_bpe_prepends_a_space_by_its_prefix_rule)
{
    struct char_bpe *s = char_bpe_make();
    s->escapes_spaces = true;
    s->prefix = PREFIX_ALWAYS;
    CHECK(normal_is(s, "a", false, " a") && normal_is(s, " a", true, "  a"));
    CHECK(normal_is(s, "", true, "") && normal_is(s,
                                                  "a\xE2\x96\x81"
                                                  "b\xE2\x96",
                                                  true, " a b\xE2\x96"));
    s->prefix = PREFIX_MISSING;
    CHECK(normal_is(s, "a", false, " a") && normal_is(s, " a", false, " a"));
    CHECK(normal_is(s,
                    "\xE2\x96\x81"
                    "a",
                    false, " a"));
    s->prefix = PREFIX_FIRST;
    CHECK(normal_is(s, "a", true, " a") && normal_is(s, "a", false, "a"));
    s->prefix = PREFIX_NEVER;
    CHECK(normal_is(s, "a ", true, "a "));
    s->escapes_spaces = false;
    CHECK(normal_is(s, "a\xE2\x96\x81", true, "a\xE2\x96\x81"));
    char_bpe_free(s);
}

TEST(char_bpe_collapses_spaces_and_replaces_invalid_utf8)
{
    struct char_bpe *s = char_bpe_make();
    s->escapes_spaces = s->removes_extra_spaces = s->replaces_invalid = s->maps_characters = true;
    CHECK(normal_is(s, "  a  b ", true, "a b") && normal_is(s, "   ", true, ""));
    CHECK(normal_is(s,
                    "a\xFF"
                    "b",
                    true,
                    "a\xEF\xBF\xBD"
                    "b"));
    CHECK_STATUS(OK, matcher_add(&s->user_defined_raw, "  x", 3, 0));
    s->removes_extra_spaces = false, s->prefix = PREFIX_ALWAYS;
    CHECK(normal_is(s, "a  x", true, " a  x"));
    char_bpe_free(s);
}

TEST(char_bpe_segments_end_where_no_token_has_both_bytes)
{
    struct char_bpe *s = char_bpe_make();
    struct vocabulary v = {0};
    add(&v, " "), add(&v, "a"), add(&v, "b"), add(&v, " ab"), add(&v, "\xE4\xB8\xAD");
    s->byte_fallback = true;
    char_bpe_finish(s, &v);
    CHECK(char_bpe_segment(s, (const unsigned char *)"ab ab", 5) == 2);
    CHECK(char_bpe_segment(s, (const unsigned char *)" abb", 4) == 3);
    CHECK(char_bpe_segment(s,
                           (const unsigned char *)"a\xE4\xB8\xAD"
                                                  "a",
                           5) == 1);
    CHECK(char_bpe_segment(s,
                           (const unsigned char *)"\xE4\xB8\xAD"
                                                  "a",
                           4) == 3);
    CHECK(char_bpe_segment(s, (const unsigned char *)"a", 1) == 1);
    char_bpe_free(s);
    s = char_bpe_make();
    s->looks_up_words = s->splits_words =
        true; /* words are looked up, so only spaces end a segment */
    char_bpe_finish(s, &v);
    CHECK(char_bpe_segment(s, (const unsigned char *)"abba  b", 7) == 4);
    CHECK(char_bpe_segment(s, (const unsigned char *)"  b", 3) == 1);
    char_bpe_free(s);
    vocabulary_release(&v);
}

TEST(char_bpe_segments_contain_the_unknown_characters_that_are_dropped)
{
    struct char_bpe *s = char_bpe_make();
    struct vocabulary v = {0};
    add(&v, " "), add(&v, "a"), add(&v, "b"), add(&v, " ab");
    char_bpe_finish(s, &v);
    CHECK(char_bpe_segment(s, (const unsigned char *)"ab ab", 5) == 2);
    CHECK(char_bpe_segment(s, (const unsigned char *)"axxb ab", 7) == 4);
    CHECK(char_bpe_segment(s,
                           (const unsigned char *)"a\xE4\xB8\xAD\xC3\xA4"
                                                  "b ab",
                           10) == 7);
    char_bpe_free(s);
    vocabulary_release(&v);
}

TEST(char_bpe_falls_back_to_bytes_unknown_or_nothing)
{
    struct char_bpe *s = char_bpe_make();
    struct vocabulary v = {0};
    int32_t ids[32];
    const unsigned char *text = (const unsigned char *)"a\xC3\xA4\xC3\xB6"
                                                       "a";
    add(&v, "a");
    char_bpe_finish(s, &v);
    CHECK(char_bpe_initial_ids(s, &v, text, 6, ids) == 2 && ids[0] == 0 && ids[1] == 0);
    s->unknown_id = 9;
    CHECK(char_bpe_initial_ids(s, &v, text, 6, ids) == 4 && ids[1] == 9 && ids[2] == 9);
    s->fuses_unknown = true;
    CHECK(char_bpe_initial_ids(s, &v, text, 6, ids) == 3 && ids[1] == 9 && ids[2] == 0);
    s->byte_fallback = true;
    s->byte_ids[0xC3] = 20, s->byte_ids[0xA4] = 21; /* the other character lacks one of its bytes */
    CHECK(char_bpe_initial_ids(s, &v, text, 6, ids) == 5 && ids[1] == 20 && ids[2] == 21);
    CHECK(ids[3] == 9 && ids[4] == 0);
    char_bpe_free(s);
    vocabulary_release(&v);
}

static bool decodes(const struct char_bpe *s, const int32_t *ids, size_t count, const char *want)
{
    struct text got = {0};
    text_adds(&got, "");
    CHECK_STATUS(OK, char_bpe_decode(s, ids, count, true, &got));
    bool same = !strcmp(got.data, want);
    text_release(&got);
    return same;
}

TEST(char_bpe_decoding_strips_leading_spaces_by_its_rule)
{
    struct char_bpe *s = char_bpe_make();
    struct text out = {0};
    char_bpe_add_piece(s, 0, PIECE_CONTROL, "", 0);
    char_bpe_add_piece(s, 1, PIECE_TEXT, "\xE2\x96\x81\xE2\x96\x81", 6);
    char_bpe_add_piece(s, 4, PIECE_TEXT,
                       "\xE2\x96\x81"
                       "a",
                       4);
    static const int32_t ids[] = {0, 1, 4}, one[] = {4, 4};
    CHECK(decodes(s, ids, 3, "   a"));
    s->strip = STRIP_ONE_SPACE;
    CHECK(decodes(s, ids, 3, "  a") && decodes(s, one, 2, "a a"));
    s->strip = STRIP_FIRST_TOKEN;
    CHECK(decodes(s, ids + 1, 2, " a") && decodes(s, one, 2, "a a"));
    s->strip = STRIP_FIRST_TEXT_PIECE;
    CHECK(decodes(s, ids, 3, "  a"));
    CHECK_STATUS(OK, char_bpe_decode(s, ids, 3, false, &out));
    CHECK(!strcmp(out.data, "   a"));
    CHECK_STATUS(DATA, char_bpe_decode(s, &(int32_t){2}, 1, false, &out));
    text_release(&out);
    char_bpe_free(s);
}

TEST(char_bpe_decoding_replaces_invalid_byte_runs)
{
    struct char_bpe *s = char_bpe_make();
    static const int bytes[] = {'x', 0xC3, 0xA4, 0xC3};
    static const int32_t ids[] = {0, 1, 2, 3};
    for (int32_t i = 0; i < 4; i++) {
        char_bpe_add_piece(s, i, PIECE_BYTE, "", 0);
        s->pieces[i].byte = (uint8_t)bytes[i];
    }
    CHECK(decodes(s, ids, 3, "x\xC3\xA4") && decodes(s, ids, 4, "x\xC3\xA4\xEF\xBF\xBD"));
    s->strict_bytes = true;
    CHECK(decodes(s, ids, 3, "x\xC3\xA4"));
    CHECK(decodes(s, ids + 2, 2, "\xEF\xBF\xBD\xEF\xBF\xBD"));
    char_bpe_free(s);
}
