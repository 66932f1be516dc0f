// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/sentence.h"

static void add(struct vocabulary *v, const char *token)
{
    CHECK_STATUS(OK, vocabulary_add(v, token, strlen(token), v->count));
}

static bool normal_is(const struct sentence *s, const char *text, bool first, const char *want)
{
    struct text got = {0};
    text_adds(&got, "");
    sentence_normalize(s, (const unsigned char *)text, strlen(text), first, &got);
    bool same = !strcmp(got.data, want);
    text_release(&got);
    return same;
}

TEST(a_prefix_is_put_before_the_texts_that_its_rule_says)
{
    struct sentence *s = sentence_make();
    s->escapes = true;
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
    s->escapes = false;
    CHECK(normal_is(s, "a\xE2\x96\x81", true, "a\xE2\x96\x81"));
    sentence_free(s);
}

TEST(spaces_are_squeezed_and_broken_bytes_replaced)
{
    struct sentence *s = sentence_make();
    s->escapes = s->squeezes = s->replaces = s->maps = true;
    CHECK(normal_is(s, "  a  b ", true, "a b") && normal_is(s, "   ", true, ""));
    CHECK(normal_is(s,
                    "a\xFF"
                    "b",
                    true,
                    "a\xEF\xBF\xBD"
                    "b"));
    CHECK_STATUS(OK, matcher_add(&s->kept, "  x", 3, 0));
    s->squeezes = false, s->prefix = PREFIX_ALWAYS;
    CHECK(normal_is(s, "a  x", true, " a  x"));
    sentence_free(s);
}

TEST(texts_are_cut_where_no_token_has_both_bytes)
{
    struct sentence *s = sentence_make();
    struct vocabulary v;
    vocabulary_init(&v);
    add(&v, " "), add(&v, "a"), add(&v, "b"), add(&v, " ab"), add(&v, "\xE4\xB8\xAD");
    sentence_finish(s, &v);
    CHECK(sentence_cut(s, (const unsigned char *)"ab ab", 5) == 2);
    CHECK(sentence_cut(s, (const unsigned char *)" abb", 4) == 3);
    CHECK(sentence_cut(s,
                       (const unsigned char *)"a\xE4\xB8\xAD"
                                              "a",
                       5) == 1);
    CHECK(sentence_cut(s,
                       (const unsigned char *)"\xE4\xB8\xAD"
                                              "a",
                       4) == 3);
    CHECK(sentence_cut(s, (const unsigned char *)"a", 1) == 1);
    sentence_free(s);
    s = sentence_make();
    s->whole_words = s->cuts_words = true; /* words are looked up, so only spaces cut */
    sentence_finish(s, &v);
    CHECK(sentence_cut(s, (const unsigned char *)"abba  b", 7) == 4);
    CHECK(sentence_cut(s, (const unsigned char *)"  b", 3) == 1);
    sentence_free(s);
    vocabulary_release(&v);
}

TEST(a_character_without_a_token_is_its_bytes_or_unknown_or_nothing)
{
    struct sentence *s = sentence_make();
    struct vocabulary v;
    int32_t ids[32];
    const unsigned char *text = (const unsigned char *)"a\xC3\xA4\xC3\xB6"
                                                       "a";
    vocabulary_init(&v);
    add(&v, "a");
    sentence_finish(s, &v);
    CHECK(sentence_symbols(s, &v, text, 6, ids) == 2 && ids[0] == 0 && ids[1] == 0);
    s->unknown = 9;
    CHECK(sentence_symbols(s, &v, text, 6, ids) == 4 && ids[1] == 9 && ids[2] == 9);
    s->fuses = true;
    CHECK(sentence_symbols(s, &v, text, 6, ids) == 3 && ids[1] == 9 && ids[2] == 0);
    s->falls_back = true;
    s->byte_id[0xC3] = 20, s->byte_id[0xA4] = 21; /* of the other character one is missing */
    CHECK(sentence_symbols(s, &v, text, 6, ids) == 5 && ids[1] == 20 && ids[2] == 21);
    CHECK(ids[3] == 9 && ids[4] == 0);
    sentence_free(s);
    vocabulary_release(&v);
}

static bool decodes(const struct sentence *s, const int32_t *ids, size_t count, const char *want)
{
    struct text got = {0};
    text_adds(&got, "");
    CHECK_STATUS(OK, sentence_decode(s, ids, count, true, &got));
    bool same = !strcmp(got.data, want);
    text_release(&got);
    return same;
}

TEST(a_decoded_text_begins_as_its_rule_says)
{
    struct sentence *s = sentence_make();
    struct text out = {0};
    sentence_add_piece(s, 0, PIECE_CONTROL, "", 0);
    sentence_add_piece(s, 1, PIECE_TEXT, "\xE2\x96\x81\xE2\x96\x81", 6);
    sentence_add_piece(s, 4, PIECE_TEXT,
                       "\xE2\x96\x81"
                       "a",
                       4);
    static const int32_t ids[] = {0, 1, 4}, one[] = {4, 4};
    CHECK(decodes(s, ids, 3, "   a"));
    s->start = START_DROPS_SPACE;
    CHECK(decodes(s, ids, 3, "  a") && decodes(s, one, 2, "a a"));
    s->start = START_DROPS_TOKEN_SPACES;
    CHECK(decodes(s, ids + 1, 2, " a") && decodes(s, one, 2, "a a"));
    s->start = START_SENTENCEPIECE;
    CHECK(decodes(s, ids, 3, "  a"));
    CHECK_STATUS(OK, sentence_decode(s, ids, 3, false, &out));
    CHECK(!strcmp(out.data, "   a"));
    CHECK_STATUS(DATA, sentence_decode(s, &(int32_t){2}, 1, false, &out));
    text_release(&out);
    sentence_free(s);
}

TEST(bytes_that_are_not_utf8_become_replacements_one_by_one_or_all)
{
    struct sentence *s = sentence_make();
    static const int bytes[] = {'x', 0xC3, 0xA4, 0xC3};
    static const int32_t ids[] = {0, 1, 2, 3};
    for (int32_t i = 0; i < 4; i++) {
        sentence_add_piece(s, i, PIECE_BYTE, "", 0);
        s->pieces[i].byte = (uint8_t)bytes[i];
    }
    CHECK(decodes(s, ids, 3, "x\xC3\xA4") && decodes(s, ids, 4, "x\xC3\xA4\xEF\xBF\xBD"));
    s->strict_bytes = true;
    CHECK(decodes(s, ids, 3, "x\xC3\xA4"));
    CHECK(decodes(s, ids + 2, 2, "\xEF\xBF\xBD\xEF\xBF\xBD"));
    sentence_free(s);
}
