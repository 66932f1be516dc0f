// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/rng.h"

static const struct tokenizer_config defaults = {0}, llama3 = {.pattern = "llama3"};

TEST(bytes_tokenizer_has_byte_ids_and_three_special_tokens)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &defaults));
    CHECK(tokenizer_vocab_size(t) == 259 && tokenizer_bos(t) == 256 && tokenizer_eos(t) == 257);
    CHECK(tokenizer_special(t, "<|mask|>") == 258 && tokenizer_special(t, "<|pad|>") == -1);
    CHECK(!strcmp(tokenizer_special_name(t, 257), "<|end_of_text|>"));
    CHECK(!tokenizer_special_name(t, 255) && !tokenizer_special_name(t, 259));
    CHECK(!strcmp(tokenizer_kind(t), "bytes") && !strcmp(tokenizer_path(t), ""));
    CHECK_IDS(t, "a\u00e9\n\xFF", 'a', 0xC3, 0xA9, '\n', 0xFF);
    CHECK_IDS(t, "<|mask|>", '<', '|', 'm', 'a', 's', 'k', '|', '>');
    tokenizer_close(t);
}

/* Of small.json with its post_processor, or without. */
static bool adds_bos(bool processed)
{
    struct text json = {0};
    struct tokenizer *t;
    const char *path = test_path(test_folder(), "tokenizer.json");
    CHECK_STATUS(OK, file_read("tests/tokenizer/data/small.json", 1 << 20, &json));
    if (!processed) memcpy(strstr(json.data, "post_processor"), "other_property", 14);
    CHECK_STATUS(OK, file_write(path, json.data, json.len));
    CHECK_STATUS(OK, tokenizer_open(&t, path, &defaults));
    CHECK(tokenizer_bos(t) == 997); /* found by its name without a post_processor */
    bool adds = tokenizer_adds_bos(t);
    tokenizer_close(t);
    text_release(&json);
    return adds;
}

TEST(the_post_processor_says_whether_texts_begin_with_bos)
{
    CHECK(adds_bos(true) && !adds_bos(false));
}

TEST(decoding_gives_bytes_and_special_token_names)
{
    struct tokenizer *t;
    struct text out = {0};
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &defaults));
    text_adds(&out, "before ");
    CHECK_STATUS(OK, tokenizer_decode(t, (const int32_t[]){256, 'h', 0, 257}, 4, &out));
    CHECK(out.len == 7 + 17 + 2 + 15 && !memcmp(out.data, "before <|begin_of_text|>h\0<", 27));
    CHECK_STATUS(OK, tokenizer_decode(t, NULL, 0, &out));
    static const int32_t wrong[] = {-1, 259, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        CHECK_STATUS(DATA, tokenizer_decode(t, &wrong[i], 1, &out));
        CHECK_MESSAGE("259");
    }
    text_release(&out);
    tokenizer_close(t);
}

TEST(decoding_inverts_encoding_for_any_bytes)
{
    static const char *const paths[] = {"bytes", "tests/tokenizer/data/small.json",
                                        "tests/tokenizer/data/small/tokenizer.model"};
    for (size_t p = 0; p < 3; p++) {
        struct tokenizer *t;
        struct text back = {0};
        CHECK_STATUS(OK, tokenizer_open(&t, paths[p], &defaults));
        for (uint64_t k = 0; k < 200; k++) {
            unsigned char bytes[400];
            size_t len = rng_below(sizeof bytes, 5, RNG_TEST, p, k);
            uint64_t most = k % 3 ? 256 : 3; /* any bytes, or long runs of a few */
            for (size_t i = 0; i < len; i++)
                bytes[i] = (unsigned char)('a' + rng_below(most, 6 + p, RNG_TEST, k, i));
            struct token_list ids = encoded(t, bytes, len);
            text_clear(&back);
            CHECK_STATUS(OK, tokenizer_decode(t, ids.ids, ids.count, &back));
            CHECK(back.len == len && (!len || !memcmp(back.data, bytes, len)));
            for (size_t i = 0; i < ids.count; i++)
                CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab_size(t));
            token_list_release(&ids);
        }
        text_release(&back);
        tokenizer_close(t);
    }
}

TEST(copied_tokenizer_opens_as_the_same_tokenizer)
{
    static const char *const paths[] = {"bytes", "tests/tokenizer/data/small.json",
                                        "tests/tokenizer/data/small/tokenizer.model"};
    static const char string[] = "It's 2026: the copy gives the same ids, \u00e4\u4e2d\n\n  too.";
    for (size_t p = 0; p < 3; p++) {
        struct tokenizer *t, *copy;
        const char *folder = test_folder();
        CHECK_STATUS(OK, tokenizer_open(&t, paths[p], &defaults));
        CHECK_STATUS(OK, tokenizer_copy(t, folder));
        bool is_tiktoken = !strcmp(tokenizer_kind(t), "tiktoken");
        CHECK_STATUS(OK, tokenizer_open(&copy, folder, is_tiktoken ? &llama3 : &defaults));
        struct token_list a = encoded(t, string, sizeof string);
        struct token_list b = encoded(copy, string, sizeof string);
        CHECK(a.count == b.count && !memcmp(a.ids, b.ids, a.count * sizeof *a.ids));
        CHECK(tokenizer_vocab_size(t) == tokenizer_vocab_size(copy));
        CHECK(tokenizer_bos(t) == tokenizer_bos(copy) && tokenizer_eos(t) == tokenizer_eos(copy));
        for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
            const char *name = tokenizer_special_name(t, id);
            if (name) CHECK(tokenizer_special(copy, name) == id);
        }
        CHECK(!strncmp(tokenizer_path(copy), folder, strlen(folder)));
        token_list_release(&a), token_list_release(&b);
        tokenizer_close(t), tokenizer_close(copy);
    }
}

TEST(tokenizer_open_searches_a_folder)
{
    struct tokenizer *t;
    struct text json = {0}, model = {0};
    const char *folder = test_folder(), *inner = test_path(folder, "original");
    write_json(&json, &(struct json_parts){0});
    write_tiktoken(&model, (const char *const[]){"ab"}, 1);
    CHECK_STATUS(MISSING, tokenizer_open(&t, folder, &defaults));
    CHECK(!t);
    CHECK_MESSAGE(folder);
    CHECK(!tokenizer_is_in(folder) && !tokenizer_is_in("/nowhere"));
    CHECK_STATUS(OK, file_make_dirs(inner));
    CHECK_STATUS(OK, file_write(test_path(inner, "tokenizer.model"), model.data, model.len));
    CHECK(tokenizer_is_in(folder));
    CHECK_STATUS(UNSUPPORTED, tokenizer_open(&t, folder, &defaults));
    CHECK_STATUS(OK, tokenizer_open(&t, folder, &llama3));
    CHECK_IDS(t, "ab", 256);
    tokenizer_close(t);
    /* Meta's folders have the configuration beside original/ */
    static const char config[] = "{\"pattern\": \"llama3\"}";
    CHECK_STATUS(OK,
                 file_write(test_path(folder, "tokenizer_config.json"), config, strlen(config)));
    CHECK_STATUS(OK, tokenizer_open(&t, folder, &defaults));
    CHECK_IDS(t, "ab", 256);
    tokenizer_close(t);
    CHECK_STATUS(OK, file_write(test_path(folder, "tokenizer.json"), json.data, json.len));
    CHECK_STATUS(OK, tokenizer_open(&t, folder, &defaults));
    CHECK(!strcmp(tokenizer_kind(t), "byte-level BPE"));
    tokenizer_close(t);
    text_release(&json), text_release(&model);
}

TEST(tokenizer_format_is_detected_from_the_content)
{
    struct tokenizer *t;
    struct text json = {0}, model = {0};
    text_adds(&json, "\n \t");
    write_json(&json, &(struct json_parts){0});
    write_tiktoken(&model, NULL, 0);
    CHECK_STATUS(OK, open_bytes(&t, "a.model", &json));
    CHECK(!strcmp(tokenizer_kind(t), "byte-level BPE"));
    tokenizer_close(t);
    CHECK_STATUS(OK, open_bytes(&t, "b.json", &model));
    CHECK(!strcmp(tokenizer_kind(t), "tiktoken"));
    tokenizer_close(t);
    text_release(&json), text_release(&model);
}

TEST(tokenizer_open_rejects_other_files)
{
    struct tokenizer *t = NULL;
    CHECK_STATUS(MISSING, tokenizer_open(&t, "/nowhere/tokenizer.json", &defaults));
    CHECK_MESSAGE("/nowhere/tokenizer.json");
    CHECK_STATUS(DATA, opens("tokenizer.model", ""));
    CHECK_MESSAGE("empty");
    CHECK_STATUS(DATA, opens("tokenizer.model", "\n\x0E\n\x05<unk>\x15"));
    CHECK_STATUS(DATA, opens("tokenizer.model", "\x7F"
                                                "ELF"));
    CHECK_STATUS(DATA, opens("tokenizer.model", "Once upon a time\n"));
    tokenizer_close(NULL);
}
