// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "tokenizer/encoder.h"

static struct tokenizer *open_path(const char *path, bool meta_cuts)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, tokenizer_open(&t, path, &(struct tokenizer_config){.meta_cuts = meta_cuts}));
    return t;
}

static struct tokenizer *open_model(void)
{
    return open_path("tests/tokenizer/data/small/tokenizer.model", false);
}

/* small.json with GPT-2's pre_tokenizer instead of its own. */
static struct tokenizer *open_like_gpt2(void)
{
    struct text file = {0}, changed = {0};
    struct tokenizer *t;
    CHECK_STATUS(OK, file_read("tests/tokenizer/data/small.json", 1 << 20, &file));
    const char *pre = strstr(file.data, "{\"type\": \"Sequence\"");
    const char *post = strstr(file.data, ",\n  \"post_processor\"");
    CHECK(pre && post && pre < post);
    text_add(&changed, file.data, (size_t)(pre - file.data));
    text_adds(&changed, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}");
    text_adds(&changed, post);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &changed));
    text_release(&file), text_release(&changed);
    return t;
}

/* Compares with the IDs of the original libraries, from tests/oracle/tokenizer.py. */
static void check_golden(const struct tokenizer *t, const char *key)
{
    struct json *root;
    CHECK_STATUS(OK, json_read("tests/tokenizer/data/golden.json", 1 << 20, &root));
    const struct json *row = json_first(json_get(root, "strings"));
    CHECK(json_count(json_get(root, "strings")) >= 100);
    for (; row; row = json_next(row)) {
        const char *string;
        CHECK_STATUS(OK, json_get_string(row, "text", &string));
        struct token_list got = encoded(t, string, strlen(string));
        CHECK(got.count == json_count(json_get(row, key)));
        const struct json *want = json_first(json_get(row, key));
        for (size_t i = 0; i < got.count; i++, want = json_next(want))
            if (json_number(want) != got.ids[i]) fail_msg("%s: id %zu of \"%s\"", key, i, string);
        token_list_release(&got);
    }
    json_free(root);
}

TEST(encoder_matches_hugging_face_tokenizers)
{
    struct tokenizer *t = open_path("tests/tokenizer/data/small.json", false);
    check_golden(t, "llama3");
    tokenizer_close(t);
    t = open_like_gpt2();
    check_golden(t, "gpt2");
    tokenizer_close(t);
}

TEST(encoder_matches_tiktoken)
{
    struct tokenizer *t = open_model();
    check_golden(t, "tiktoken");
    tokenizer_close(t);
}

TEST(encoder_treats_special_token_text_as_plain_text)
{
    struct tokenizer *t = open_model();
    static const char string[] = "<|begin_of_text|>a<|eot_id|>";
    struct token_list ids = encoded(t, string, sizeof string - 1);
    CHECK(ids.count > 3);
    for (size_t i = 0; i < ids.count; i++) CHECK(!tokenizer_special_name(t, ids.ids[i]));
    token_list_release(&ids);
    tokenizer_close(t);
}

static void check_cache(const struct tokenizer *t, struct encoder *e)
{
    struct token_list all = {0}, once = {0};
    for (uint64_t k = 0; k < 3000; k++) { /* many words, most of them repeated */
        char word[40];
        size_t len = 1 + rng_below(sizeof word - 1, 9, RNG_TEST, 0, k % 700);
        for (size_t i = 0; i < len; i++)
            word[i] = (char)('a' + rng_below(4, 9, RNG_TEST, 1 + k % 700, i));
        size_t before = all.count;
        CHECK_STATUS(OK, encoder_encode(e, word, len, &all));
        once = encoded(t, word, len);
        CHECK(all.count - before == once.count);
        CHECK(!memcmp(all.ids + before, once.ids, once.count * sizeof *once.ids));
        token_list_release(&once);
    }
    size_t before = all.count;
    CHECK_STATUS(OK, encoder_encode(e, "", 0, &all));
    CHECK(all.count == before);
    token_list_release(&all);
}

TEST(encoder_appends_and_its_cache_does_not_change_results)
{
    struct tokenizer *t = open_model();
    struct encoder *e, *tiny;
    CHECK_STATUS(OK, encoder_make(&e, t));
    CHECK_STATUS(OK, encoder_make_sized(&tiny, t, 1));
    check_cache(t, e);
    check_cache(t, tiny);
    encoder_free(e);
    encoder_free(tiny);
    encoder_free(NULL);
    tokenizer_close(t);
}

TEST(encoder_memory_is_that_of_its_cache_unless_each_byte_is_a_token)
{
    struct tokenizer *t = open_model(), *bytes = open_path("bytes", false);
    struct encoder *e, *sized, *of_bytes;
    CHECK_STATUS(OK, encoder_make(&e, t));
    CHECK_STATUS(OK, encoder_make_sized(&sized, t, ENCODER_CORPUS_BITS));
    CHECK_STATUS(OK, encoder_make(&of_bytes, bytes));
    CHECK(encoder_memory_bytes(sized) - encoder_memory_bytes(e) == 12 << 20);
    CHECK(encoder_memory_bytes(e) > 4 << 20);
    CHECK(encoder_memory_bytes(of_bytes) == 0);
    encoder_free(e), encoder_free(sized), encoder_free(of_bytes);
    tokenizer_close(t), tokenizer_close(bytes);
}

TEST(encoder_does_not_read_past_the_text)
{
    struct tokenizer *t = open_model();
    static const char string[] = "It's the 2nd half of \xC3\xA4 and the \xE4\xB8\xAD, the the";
    for (size_t len = 0; len < sizeof string; len++) {
        char *copy = heap(len + 1);
        char *tight = heap_grow(NULL, len ? len : 1, 1); /* the sanitizer sees reads past its end */
        memcpy(copy, string, len);
        memcpy(tight, string, len);
        struct token_list a = encoded(t, copy, len), b = encoded(t, tight, len);
        CHECK(a.count == b.count && (!len || !memcmp(a.ids, b.ids, a.count * sizeof *a.ids)));
        token_list_release(&a), token_list_release(&b);
        free(copy), free(tight);
    }
    tokenizer_close(t);
}

/* The concatenated IDs of the parts, each encoded by itself. */
static struct token_list in_parts(const struct tokenizer *t, const char *at, size_t len,
                                  const size_t *cuts, size_t count)
{
    struct token_list all = {0};
    size_t begin = 0;
    for (size_t i = 0; i <= count; i++) {
        size_t end = i < count ? cuts[i] : len;
        struct token_list part = encoded(t, at + begin, end - begin);
        token_list_reserve(&all, part.count);
        memcpy(all.ids + all.count, part.ids, part.count * sizeof *part.ids);
        all.count += part.count;
        token_list_release(&part);
        begin = end;
    }
    return all;
}

static void check_cuts(const struct text *string, const size_t *cuts, size_t count)
{
    struct tokenizer *t = open_model();
    struct tokenizer *cutting = open_path("tests/tokenizer/data/small/tokenizer.model", true);
    struct token_list want = in_parts(t, string->data, string->len, cuts, count);
    struct token_list got = encoded(cutting, string->data, string->len);
    CHECK(got.count == want.count && !memcmp(got.ids, want.ids, got.count * sizeof *got.ids));
    token_list_release(&got), token_list_release(&want);
    tokenizer_close(t), tokenizer_close(cutting);
}

TEST(a_new_encoder_encodes_an_empty_text)
{
    static const char *const names[] = {"unigram", "mapped", "defined", "bytes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        struct tokenizer *t;
        struct encoder *e;
        struct token_list ids = {0};
        snprintf(path, sizeof path, "tests/tokenizer/data/sentence_%s.model", names[i]);
        CHECK_STATUS(OK, tokenizer_open(&t, path, &(struct tokenizer_config){0}));
        CHECK_STATUS(OK, encoder_make(&e, t));
        CHECK_STATUS(OK, encoder_encode(e, "", 0, &ids));
        CHECK(ids.count == 0);
        token_list_release(&ids);
        encoder_free(e);
        tokenizer_close(t);
    }
}

TEST(meta_cuts_split_every_400000_characters)
{
    struct text string = {0};
    while (string.len < 900000) text_adds(&string, "the theme ");
    check_cuts(&string, (const size_t[]){400000, 800000}, 2);
    text_clear(&string);
    for (int i = 0; i < 130000; i++)
        text_adds(&string, "\u00e4\u4e2d a"); /* seven bytes, four characters */
    check_cuts(&string, (const size_t[]){700000}, 1);
    text_release(&string);
}

TEST(meta_cuts_split_runs_of_25000_characters)
{
    struct text string = {0};
    text_adds(&string, "a b");
    for (int i = 0; i < 60000; i++) text_adds(&string, "c");
    for (int i = 0; i < 25001; i++) text_adds(&string, " ");
    text_adds(&string, "the");
    check_cuts(&string, (const size_t[]){2 + 25000, 2 + 50000, 3 + 60000 + 25000}, 3);
    text_release(&string);
}

TEST(without_meta_cuts_a_long_run_is_one_piece)
{
    struct tokenizer *t = NULL;
    struct text model = {0}, string = {0};
    write_tiktoken(&model, (const char *const[]){"aa", "aaaa"}, 2);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &model));
    for (int i = 0; i < 30003; i++) text_adds(&string, "a");
    struct token_list ids = encoded(t, string.data, string.len);
    CHECK(ids.count == 7500 + 2 && ids.ids[7499] == 257 && ids.ids[7500] == 256);
    token_list_release(&ids);
    text_release(&model), text_release(&string);
    tokenizer_close(t);
}

TEST(encoder_rejects_a_piece_over_the_limit)
{
    struct tokenizer *t = open_model();
    struct encoder *e;
    struct token_list ids = {0};
    size_t len = (64 << 20) + 1;
    char *string = heap(len);
    memset(string, 'a', len);
    CHECK_STATUS(OK, encoder_make(&e, t));
    CHECK_STATUS(RECORD, encoder_encode(e, string, len, &ids));
    CHECK_MESSAGE("67108865");
    free(string);
    token_list_release(&ids);
    encoder_free(e);
    tokenizer_close(t);
}
