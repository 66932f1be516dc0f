// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/hf_folder.h"

static const struct hf_folder_options plain = {.bos = -1, .eos = -1};
static const char *const texts[] = {"Hello world",
                                    "  two  spaces\n\n\tx",
                                    " leading",
                                    "It's 12345678 o'clock, DON'T",
                                    "\xF0\x9F\x98\x80 \xE6\x97\xA5\xE6\x9C\xAC e\xCC\x81 x = y+1;",
                                    "\xE2\x96\x81 a"};

static struct tokenizer *opened(const char *path)
{
    struct tokenizer *t = NULL;
    CHECK_STATUS(OK, tokenizer_open(&t, path, &(struct tokenizer_config){0}));
    return t;
}

/* Writes the tokenizer and its files into a new folder. */
static const char *write_folder(const struct tokenizer *t, const struct hf_folder_options *o)
{
    const char *folder = test_folder();
    struct hf_folder f;
    hf_folder_make(&f, t, o);
    CHECK_STATUS(OK, tokenizer_copy(t, folder));
    for (int i = 0; i < HF_FOLDER_FILES; i++) {
        const struct hf_folder_file *file = &f.files[i];
        const char *path = test_path(folder, file->name);
        if (file->text.len) CHECK_STATUS(OK, file_write(path, file->text.data, file->text.len));
    }
    hf_folder_release(&f);
    return folder;
}

static struct json *read_json(const char *folder, const char *name)
{
    struct json *root = NULL;
    CHECK_STATUS(OK, json_read(test_path(folder, name), 1 << 20, &root));
    return root;
}

static void check_same_ids(const struct tokenizer *a, const struct tokenizer *b)
{
    CHECK(tokenizer_vocab_size(a) == tokenizer_vocab_size(b));
    CHECK(tokenizer_bos(a) == tokenizer_bos(b) && tokenizer_eos(a) == tokenizer_eos(b));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct token_list x = encoded(a, texts[i], strlen(texts[i]));
        struct token_list y = encoded(b, texts[i], strlen(texts[i]));
        CHECK(x.count == y.count && !memcmp(x.ids, y.ids, x.count * sizeof *x.ids));
        token_list_release(&x), token_list_release(&y);
    }
}

TEST(converted_tokenizer_json_gives_the_ids_of_the_model)
{
    static const char *const paths[] = {"tests/tokenizer/data/small/tokenizer.model",
                                        "tests/tokenizer/data/sentence_bytes.model"};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = opened(paths[i]);
        const char *folder = write_folder(t, &plain);
        struct tokenizer *json = opened(test_path(folder, "tokenizer.json"));
        CHECK(!strcmp(tokenizer_kind(json), i ? "BPE with byte_fallback" : "byte-level BPE"));
        check_same_ids(t, json);
        for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
            const char *name = tokenizer_special_name(t, id);
            if (name) CHECK(tokenizer_special(json, name) == id);
        }
        tokenizer_close(t), tokenizer_close(json);
    }
}

TEST(folder_with_converted_json_opens_its_model_until_the_json_changes)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small/tokenizer.model");
    const char *folder = write_folder(t, &plain), *json = test_path(folder, "tokenizer.json");
    struct tokenizer *again = opened(folder);
    struct text file = {0};
    CHECK(!strcmp(tokenizer_kind(again), "tiktoken"));
    CHECK(tokenizer_special(again, "<|reserved_special_token_2|>") == /* the second name */
          tokenizer_special(again, "<|finetune_right_pad_id|>"));
    check_same_ids(t, again);
    tokenizer_close(again);
    CHECK_STATUS(OK, file_read(json, 1 << 20, &file));
    text_adds(&file, "\n");
    CHECK_STATUS(OK, file_write(json, file.data, file.len));
    again = opened(folder);
    CHECK(!strcmp(tokenizer_kind(again), "byte-level BPE"));
    check_same_ids(t, again);
    tokenizer_close(t), tokenizer_close(again);
    text_release(&file);
}

TEST(hf_folder_keeps_a_given_tokenizer_json)
{
    static const char *const paths[] = {"bytes", "tests/tokenizer/data/small.json"};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = opened(paths[i]);
        struct hf_folder f;
        hf_folder_make(&f, t, &plain);
        CHECK(!f.other_ids && !f.files[0].text.len && f.files[1].text.len);
        CHECK(!strstr(f.files[1].text.data, "crc32c"));
        hf_folder_release(&f);
        tokenizer_close(t);
    }
}

TEST(tokenizer_config_names_the_special_tokens)
{
    struct tokenizer *t = opened("bytes");
    const struct hf_folder_options masked = {-1, -1, 77, "<|mask|>"};
    for (int i = 0; i < 2; i++) {
        const char *folder = write_folder(t, i ? &masked : &plain);
        struct json *config = read_json(folder, "tokenizer_config.json");
        struct json *map = read_json(folder, "special_tokens_map.json");
        CHECK(json_string_is(json_get(config, "tokenizer_class"), "PreTrainedTokenizerFast"));
        CHECK(json_string_is(json_get(config, "bos_token"), "<|begin_of_text|>"));
        CHECK(json_string_is(json_get(map, "eos_token"), "<|end_of_text|>"));
        CHECK(json_string_is(json_get(config, "mask_token"), "<|mask|>") == i);
        CHECK(json_string_is(json_get(map, "mask_token"), "<|mask|>") == i);
        CHECK(!json_get(config, "unk_token") && !json_get(config, "chat_template"));
        int64_t length = 0;
        CHECK(json_as_int(json_get(config, "model_max_length"), 77, 77, &length) == i);
        json_free(config), json_free(map);
    }
    tokenizer_close(t);
}

/* tokenizer.json has one name for each ID; the others would become new tokens. */
TEST(mask_token_is_named_as_in_tokenizer_json)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small/tokenizer.model");
    const struct hf_folder_options o = {-1, -1, 0, "<|reserved_special_token_2|>"};
    struct json *config = read_json(write_folder(t, &o), "tokenizer_config.json");
    CHECK(json_string_is(json_get(config, "mask_token"), "<|finetune_right_pad_id|>"));
    json_free(config);
    tokenizer_close(t);
}

TEST(generation_config_has_all_of_llama_3s_stop_tokens)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small/tokenizer.model"),
                     *bytes = opened("bytes");
    struct json *config = read_json(write_folder(t, &plain), "generation_config.json");
    const struct json *stop = json_first(json_get(config, "eos_token_id"));
    static const char *const names[] = {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"};
    for (int i = 0; i < 3; i++, stop = json_next(stop)) {
        int64_t id = -1;
        CHECK(json_as_int(stop, 0, 1 << 20, &id) && id == tokenizer_special(t, names[i]));
    }
    CHECK(!stop);
    json_free(config);
    const struct hf_folder_options o = {7, 8, 0, NULL}; /* of config.json */
    config = read_json(write_folder(bytes, &o), "generation_config.json");
    CHECK(json_number(json_get(config, "bos_token_id")) == 7);
    CHECK(json_number(json_get(config, "eos_token_id")) == 8);
    CHECK(!json_get(config, "do_sample") && !json_get(config, "temperature"));
    json_free(config);
    tokenizer_close(t), tokenizer_close(bytes);
}

/* tests/oracle/unigram.py compares more with Transformers. */
TEST(sentencepiece_models_with_a_charsmap_or_symbols_are_converted)
{
    static const struct {
        const char *path, *kind;
        bool maps, ties; /* other IDs for clusters, and for segmentations of equal scores */
    } rows[] = {
        {"tests/tokenizer/data/sentence_mapped.model", "BPE with byte_fallback", true, false},
        {"tests/tokenizer/data/sentence_defined.model", "BPE with byte_fallback", true, false},
        {"tests/tokenizer/data/sentence_unigram.model", "Unigram", true, true},
        {"tests/tokenizer/data/sentence_bytes.model", "BPE with byte_fallback", false, false},
    };
    static const char *const strings[] = {
        "the<mask>the  x",          "\xEF\xBC\xA1 a\xC2\xA0 b \xC2\xBD", " the", "<sep>a", "",
        "a\xE2\x96\x81\xE2\x96\x81"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t = opened(rows[i].path);
        struct hf_folder f;
        hf_folder_make(&f, t, &plain);
        CHECK(!!f.other_ids == (rows[i].maps || rows[i].ties));
        CHECK(!f.other_ids || !!strstr(f.other_ids, "grapheme clusters") == rows[i].maps);
        CHECK(!f.other_ids || !!strstr(f.other_ids, "equal scores") == rows[i].ties);
        hf_folder_release(&f);
        const char *folder = write_folder(t, &plain);
        struct json *config = read_json(folder, "tokenizer_config.json");
        CHECK(json_string_is(json_get(config, "tokenizer_class"), "PreTrainedTokenizerFast"));
        json_free(config);
        struct tokenizer *json = opened(test_path(folder, "tokenizer.json"));
        CHECK(!strcmp(tokenizer_kind(json), rows[i].kind));
        for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) {
            struct token_list x = encoded(t, strings[k], strlen(strings[k]));
            struct token_list y = encoded(json, strings[k], strlen(strings[k]));
            if (x.count != y.count || (x.count && memcmp(x.ids, y.ids, x.count * sizeof *x.ids)))
                fail_msg("%s: \"%s\"", rows[i].path, strings[k]);
            token_list_release(&x), token_list_release(&y);
        }
        tokenizer_close(t), tokenizer_close(json);
    }
}

TEST(hf_folder_keeps_the_files_beside_tokenizer_json)
{
    static const char config[] = "{\"eos_token\": \"</s>\", \"chat_template\": \"x\"}";
    static const char template[] = "{{ messages }}";
    struct text json = {0};
    const char *source = test_folder();
    write_json(&json, &(struct json_parts){.added_tokens = "{\"id\": 256, \"content\": \"</s>\"}"});
    CHECK_STATUS(OK, file_write(test_path(source, "tokenizer.json"), json.data, json.len));
    CHECK_STATUS(OK,
                 file_write(test_path(source, "tokenizer_config.json"), config, strlen(config)));
    CHECK_STATUS(OK,
                 file_write(test_path(source, "chat_template.jinja"), template, strlen(template)));
    struct tokenizer *t = opened(source);
    const struct hf_folder_options masked = {-1, -1, 0, "</s>"};
    for (int i = 0; i < 2; i++) {
        const char *folder = write_folder(t, i ? &masked : &plain);
        struct json *written = read_json(folder, "tokenizer_config.json");
        CHECK(json_string_is(json_get(written, "chat_template"), "x") == !i);
        CHECK(json_string_is(json_get(written, "mask_token"), "</s>") == i);
        CHECK(file_exists_in(folder, "chat_template.jinja"));
        CHECK(file_exists_in(folder, "special_tokens_map.json") == i);
        CHECK(!file_exists_in(folder, "added_tokens.json"));
        json_free(written);
    }
    tokenizer_close(t);
    text_release(&json);
}

TEST(hf_folder_keeps_a_special_tokens_map_without_tokenizer_config)
{
    static const char map[] = "{\"sep_token\": \"</s>\"}";
    struct text json = {0};
    const char *source = test_folder();
    write_json(&json, &(struct json_parts){.added_tokens = "{\"id\": 256, \"content\": \"</s>\"}"});
    CHECK_STATUS(OK, file_write(test_path(source, "tokenizer.json"), json.data, json.len));
    CHECK_STATUS(OK, file_write(test_path(source, "special_tokens_map.json"), map, strlen(map)));
    struct tokenizer *t = opened(source);
    const struct hf_folder_options masked = {-1, -1, 0, "</s>"};
    for (int i = 0; i < 2; i++) {
        const char *folder = write_folder(t, i ? &masked : &plain);
        struct json *written = read_json(folder, "special_tokens_map.json");
        CHECK(json_string_is(json_get(written, "sep_token"), "</s>") == !i);
        CHECK(json_string_is(json_get(written, "mask_token"), "</s>") == i);
        CHECK(file_exists_in(folder, "tokenizer_config.json"));
        json_free(written);
    }
    tokenizer_close(t);
    text_release(&json);
}

TEST(tokenizer_config_names_a_padding_token)
{
    static const struct {
        const char *path, *name;
    } rows[] = {{"bytes", "<|end_of_text|>"},
                {"tests/tokenizer/data/small/tokenizer.model", "<|finetune_right_pad_id|>"}};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = opened(rows[i].path);
        struct json *config = read_json(write_folder(t, &plain), "tokenizer_config.json");
        CHECK(json_string_is(json_get(config, "pad_token"), rows[i].name));
        json_free(config);
        tokenizer_close(t);
    }
}

/* The tiktoken file does not contain them. */
TEST(folder_keeps_the_pattern_and_the_special_tokens_of_a_tiktoken_file)
{
    static const char config[] = "{\"pattern\": \"a|[^a]+\", \"eos_token\": \"<e>\", "
                                 "\"added_tokens_decoder\": {\"290\": {\"content\": \"<e>\"}}}";
    struct text file = {0};
    const char *source = test_folder();
    write_tiktoken(&file, (const char *const[]){"bc", "abc"}, 2);
    CHECK_STATUS(OK, file_write(test_path(source, "tokenizer.model"), file.data, file.len));
    CHECK_STATUS(OK,
                 file_write(test_path(source, "tokenizer_config.json"), config, strlen(config)));
    struct tokenizer *t = opened(source);
    const char *folder = write_folder(t, &plain);
    struct tokenizer *again = opened(folder), *json = opened(test_path(folder, "tokenizer.json"));
    CHECK(!strcmp(tokenizer_kind(again), "tiktoken") && tokenizer_eos(again) == 290);
    CHECK(tokenizer_hash(again) == tokenizer_hash(t));
    CHECK_IDS(again, "abc", 'a', 256);
    CHECK_IDS(json, "abc", 'a', 256);
    check_same_ids(t, again);
    tokenizer_close(t), tokenizer_close(again), tokenizer_close(json);
    text_release(&file);
}
