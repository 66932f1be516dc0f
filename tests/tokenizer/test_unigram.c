// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/json.h"
#include "tokenizer/unigram.h"

static struct unigram *make(const char *const *texts, const double *scores, size_t count,
                            bool single)
{
    struct unigram_token tokens[8];
    struct unigram_model m = {
        .tokens = tokens, .count = count, .min_score = -5, .single_precision = single};
    for (size_t i = 0; i < count; i++)
        tokens[i] = (struct unigram_token){texts[i], (uint32_t)strlen(texts[i]), (int32_t)i + 10,
                                           scores[i]};
    return unigram_make(&m);
}

static bool path_is(const struct unigram *u, const char *text, const char *want)
{
    struct unigram_path p = {0};
    struct text got = {0};
    text_adds(&got, "");
    unigram_encode(u, &p, (const unsigned char *)text, strlen(text));
    for (size_t i = 0; i < p.count; i++)
        text_addf(&got, "%d:%u+%u ", p.pieces[i].id, p.pieces[i].begin, p.pieces[i].len);
    bool same = !strcmp(got.data, want);
    if (!same) print_error("%s\n", got.data);
    unigram_path_release(&p);
    text_release(&got);
    return same;
}

TEST(unigram_finds_the_segmentation_with_the_best_sum)
{
    static const char *const texts[] = {"a", "b", "ab", "abc", "c"};
    struct unigram *u = make(texts, (const double[]){-1, -1, -1.5, -4, -2}, 5, false);
    CHECK(path_is(u, "", ""));
    CHECK(path_is(u, "abc", "12:0+2 14:2+1 "));
    CHECK(path_is(u, "ba", "11:0+1 10:1+1 "));
    unigram_free(u);
}

TEST(unigram_prefers_the_first_of_equal_segmentations)
{
    static const char *const texts[] = {"-", "--"};
    struct unigram *u = make(texts, (const double[]){-1, -1.5}, 2, true);
    CHECK(path_is(u, "---", "10:0+1 11:1+2 "));
    unigram_free(u);
}

TEST(unigram_marks_characters_without_a_token)
{
    static const char *const texts[] = {"a", "x\xC3\xA4y"};
    struct unigram *u = make(texts, (const double[]){-1, -2}, 2, false);
    CHECK(path_is(u,
                  "a\xC3\xA4"
                  "a",
                  "10:0+1 -1:1+2 10:3+1 "));
    CHECK(path_is(u, "x\xC3\xA4y", "11:0+4 "));
    CHECK(path_is(u, "x\xC3", "-1:0+1 -1:1+1 "));
    unigram_free(u);
}

TEST(unigram_sums_in_single_precision_where_sentencepiece_does)
{
    /* From 2^16 on floats are 1/128 apart; of two segmentations that round to one sum the first
     * stays */
    static const char *const texts[] = {"s", "a", "b", "ab"};
    static const double scores[] = {-65536, -1. / 256, -1. / 256, -1. / 256};
    struct unigram *single = make(texts, scores, 4, true), *other = make(texts, scores, 4, false);
    CHECK(path_is(single, "sab", "10:0+1 13:1+2 ") && path_is(other, "sab", "10:0+1 13:1+2 "));
    unigram_free(single), unigram_free(other);
    static const double more[] = {-65536, -1. / 1024, -1. / 1024, -3. / 1024};
    single = make(texts, more, 4, true), other = make(texts, more, 4, false);
    CHECK(path_is(single, "sab", "10:0+1 13:1+2 ") &&
          path_is(other, "sab", "10:0+1 11:1+1 12:2+1 "));
    unigram_free(single), unigram_free(other);
}

TEST(unigram_limits_sums_in_single_precision_as_sentencepiece_does)
{
    static const char *const texts[] = {"s", "a", "b", "ab"};
    static const double scores[] = {-65536, -1. / 1024, -1. / 1024, -3. / 1024};
    struct unigram *u = make(texts, scores, 4, true);
    CHECK(path_is(u, "sab", "10:0+1 13:1+2 "));
    CHECK(path_is(u, "ssab", "10:0+1 10:1+1 11:2+1 12:3+1 "));
    CHECK(path_is(u, "sssab", "10:0+1 10:1+1 10:2+1 13:3+2 "));
    unigram_free(u);
}

static struct token_list ids_of(const struct json *list)
{
    struct token_list ids = {0};
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        token_list_reserve(&ids, 1);
        ids.ids[ids.count++] = (int32_t)json_number(v);
    }
    return ids;
}

static void check_ids(const struct tokenizer *t, const void *bytes, size_t len,
                      const struct json *want_list, const char *what)
{
    struct token_list got = encoded(t, bytes, len), want = ids_of(want_list);
    bool same = got.count == want.count &&
                (!got.count || !memcmp(got.ids, want.ids, got.count * sizeof *got.ids));
    if (!same) fail_msg("%s: \"%.*s\"", what, (int)len, (const char *)bytes);
    token_list_release(&got), token_list_release(&want);
}

static void read_hex(struct text *out, const char *hex)
{
    unsigned byte;
    text_adds(out, "");
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) text_add(out, &(char){(char)byte}, 1);
}

/* Expected values are from the sentencepiece library, by tests/oracle/unigram.py. */
TEST(sentencepiece_unigram_models_match_the_library)
{
    struct json *root;
    struct tokenizer *t;
    const struct tokenizer_config config = {0};
    CHECK_STATUS(OK, json_read("tests/tokenizer/data/unigram.json", 1 << 20, &root));
    CHECK_STATUS(OK, tokenizer_open(&t, "tests/tokenizer/data/sentence_unigram.model", &config));
    CHECK(!strcmp(tokenizer_kind(t), "SentencePiece Unigram"));
    const struct json *row = json_first(json_get(root, "sentences"));
    CHECK(json_count(json_get(root, "sentences")) >= 100);
    for (; row; row = json_next(row)) {
        struct text given = {0}, want = {0}, back = {0};
        read_hex(&given, json_string(json_get(row, "hex")));
        read_hex(&want, json_string(json_get(row, "text")));
        check_ids(t, given.data, given.len, json_get(row, "ids"), "sentencepiece");
        struct token_list ids = ids_of(json_get(row, "ids"));
        text_adds(&back, "");
        CHECK_STATUS(OK, tokenizer_decode(t, ids.ids, ids.count, &back));
        CHECK(back.len == want.len && !memcmp(back.data, want.data, want.len));
        token_list_release(&ids);
        text_release(&given), text_release(&want), text_release(&back);
    }
    tokenizer_close(t);
    json_free(root);
}

/* Expected values are from the tokenizers library, by tests/oracle/unigram.py. */
TEST(unigram_pipelines_match_the_tokenizers_library)
{
    struct json *root;
    const char *tail, *string;
    CHECK_STATUS(OK, json_read("tests/tokenizer/data/unigram.json", 1 << 20, &root));
    CHECK_STATUS(OK, json_get_string(root, "tail", &tail));
    const struct json *head = json_first(json_get(root, "heads"));
    CHECK(json_count(json_get(root, "heads")) >= 14 && json_count(json_get(root, "rows")) >= 50);
    for (; head; head = json_next(head)) {
        struct text file = {0};
        struct tokenizer *t = NULL;
        text_addf(&file, "%s%s", json_string(head), tail);
        CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &file));
        CHECK(!strcmp(tokenizer_kind(t), "Unigram"));
        const struct json *row = json_first(json_get(root, "rows"));
        for (; row; row = json_next(row)) {
            CHECK_STATUS(OK, json_get_string(row, "text", &string));
            check_ids(t, string, strlen(string), json_get(row, json_key(head)), json_key(head));
        }
        tokenizer_close(t);
        text_release(&file);
    }
    json_free(root);
}
