// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/files/hf_json.h"
#include "tokenizer/hf_folder.h"
#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"

static const char vocab[] = ", \"ab\": 256, \"bc\": 257, \"abc\": 258, \"\xC4\xA0"
                            "a\": 259";
static const char merges[] = "\"b c\", [\"a\", \"b\"], \"a bc\", \"\xC4\xA0 a\"";
static const char split[] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                            "\"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", "
                            "\"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                            "false, \"use_regex\": false}]}";

static enum status open_parts(struct tokenizer **t, const struct json_parts *parts)
{
    struct text file = {0};
    *t = NULL;
    write_json(&file, parts);
    enum status st = open_bytes(t, "tokenizer.json", &file);
    text_release(&file);
    return st;
}

static struct tokenizer *open_with(struct json_parts parts)
{
    struct tokenizer *t;
    if (!parts.vocab) parts.vocab = vocab, parts.merges = merges;
    CHECK_STATUS(OK, open_parts(&t, &parts));
    return t;
}

TEST(hf_json_merges_in_list_order)
{
    struct tokenizer *t = open_with((struct json_parts){0});
    CHECK(!strcmp(tokenizer_kind(t), "byte-level BPE") && tokenizer_vocab_size(t) == 260);
    CHECK(tokenizer_bos(t) == -1 && tokenizer_eos(t) == -1);
    CHECK_IDS(t, "abc", 258);
    CHECK_IDS(t, "ab", 256);
    CHECK_IDS(t, "abcab", 258, 256);
    CHECK_IDS(t, "a ab", 'a', ' ', 256);
    CHECK_IDS(t, "a ac", 'a', 259, 'c');
    tokenizer_close(t);
}

TEST(hf_json_byte_alphabet_covers_all_256_bytes)
{
    struct tokenizer *t = open_with((struct json_parts){0});
    char bytes[256];
    struct text back = {0};
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    for (int32_t i = 0; i < 256; i++) CHECK_STATUS(OK, tokenizer_decode(t, &i, 1, &back));
    CHECK(back.len == 256 && !memcmp(back.data, bytes, 256));
    text_release(&back);
    tokenizer_close(t);
}

TEST(hf_json_ignore_merges_looks_up_whole_pieces)
{
    const char *lone = ", \"xyz\": 256";
    struct tokenizer *t = open_with((struct json_parts){.vocab = lone});
    CHECK_IDS(t, "xyz", 'x', 'y', 'z');
    tokenizer_close(t);
    t = open_with((struct json_parts){.vocab = lone, .model = "\"ignore_merges\": true,"});
    CHECK_IDS(t, "xyz", 256);
    CHECK_IDS(t, "xyzx", 'x', 'y', 'z', 'x');
    tokenizer_close(t);
}

static struct tokenizer *open_split(const char *pattern)
{
    char pre[1024], escaped[512], *to = escaped;
    for (const char *at = pattern; *at; *to++ = *at++)
        if (*at == '\\') *to++ = '\\';
    *to = 0;
    snprintf(pre, sizeof pre, split, escaped);
    return open_with((struct json_parts){.pre = pre,
                                         .vocab = ", \"ab\": 256, \"1\xC4\xA0\": 257",
                                         .merges = "\"a b\", \"1 \xC4\xA0\""});
}

TEST(hf_json_split_patterns_apply_before_merging)
{
    struct tokenizer *t = open_split(split_llama3_pattern);
    CHECK_IDS(t, "1 ab", '1', ' ', 256);
    tokenizer_close(t);
    t = open_split(split_gpt2_pattern);
    CHECK_IDS(t, "1 ab", '1', ' ', 256);
    tokenizer_close(t);
    t = open_split("a");
    CHECK_IDS(t, "1 ab", 257, 'a', 'b');
    tokenizer_close(t);
    t = open_split("[^b]+|b");
    CHECK_IDS(t, "1 ab", 257, 'a', 'b');
    tokenizer_close(t);
}

TEST(hf_json_without_a_split_encodes_a_text_as_one_piece)
{
    const char *pre =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    struct tokenizer *t =
        open_with((struct json_parts){.pre = pre,
                                      .vocab = ", \"a!\": 256, \"!\xC4\xA0\": 257",
                                      .merges = "\"a !\", \"! \xC4\xA0\""});
    CHECK_IDS(t, "a!! b", 256, 257, 'b');
    tokenizer_close(t);
}

TEST(hf_json_added_tokens_are_special_and_extend_the_vocabulary)
{
    const char *added = "{\"id\": 300, \"content\": \"<|endoftext|>\", \"special\": true},"
                        "{\"id\": 256, \"content\": \"<pad>\"}, {\"id\": 97, \"content\": \"a\"}";
    struct tokenizer *t = NULL;
    struct text back = {0};
    struct json_parts parts = {.added_tokens = added, .vocab = ", \"<pad>\": 256"};
    CHECK_STATUS(DATA, open_parts(&t, &parts)); /* a single byte cannot be special */
    CHECK_MESSAGE("0x61");
    parts.added_tokens = "{\"id\": 300, \"content\": \"<|endoftext|>\"},"
                         "{\"id\": 256, \"content\": \"<pad>\"}";
    CHECK_STATUS(OK, open_parts(&t, &parts));
    CHECK(tokenizer_vocab_size(t) == 301 && tokenizer_eos(t) == 300 && tokenizer_bos(t) == -1);
    CHECK(tokenizer_special(t, "<pad>") == 256 && tokenizer_special(t, "<mask>") == -1);
    CHECK(!strcmp(tokenizer_special_name(t, 256), "<pad>") && !tokenizer_special_name(t, 299));
    CHECK_IDS(t, "<pad>", '<', 'p', 'a', 'd', '>');
    CHECK_STATUS(OK, tokenizer_decode(t, (const int32_t[]){'x', 256}, 2, &back));
    CHECK(!strcmp(back.data, "x<pad>"));
    CHECK_STATUS(DATA, tokenizer_decode(t, &(int32_t){299}, 1, &back));
    CHECK(tokenizer_has(t, 0) && tokenizer_has(t, 256) && tokenizer_has(t, 300));
    CHECK(!tokenizer_has(t, -1) && !tokenizer_has(t, 299) && !tokenizer_has(t, 301));
    text_release(&back);
    tokenizer_close(t);
}

TEST(hf_json_finds_bos_and_eos_by_name_or_template)
{
    const char *added = "{\"id\": 300, \"content\": \"<s>\"}, {\"id\": 301, \"content\": \"</s>\"},"
                        "{\"id\": 302, \"content\": \"[START]\"}";
    struct tokenizer *t = open_with((struct json_parts){.added_tokens = added});
    CHECK(tokenizer_bos(t) == 300 && tokenizer_eos(t) == 301);
    tokenizer_close(t);
    const char *template = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                           "{\"id\": \"[START]\", \"type_id\": 0}}, {\"Sequence\": {}}]}";
    char rest[512];
    snprintf(rest, sizeof rest, "\"post_processor\": %s,", template);
    t = open_with((struct json_parts){.added_tokens = added, .rest = rest});
    CHECK(tokenizer_bos(t) == 302);
    tokenizer_close(t);
    snprintf(rest, sizeof rest,
             "\"post_processor\": {\"type\": \"Sequence\", \"processors\": "
             "[{\"type\": \"ByteLevel\"}, %s]},",
             template);
    t = open_with((struct json_parts){.added_tokens = added, .rest = rest});
    CHECK(tokenizer_bos(t) == 302 && tokenizer_eos(t) == 301);
    tokenizer_close(t);
}

/* Opens <folder>/tokenizer.json with a tokenizer_config.json beside it. */
static enum status open_with_config(struct tokenizer **t, const char *added, const char *config)
{
    const char *folder = test_folder();
    struct text file = {0};
    write_json(&file, &(struct json_parts){.added_tokens = added, .vocab = ", \"<pad>\": 256"});
    CHECK_STATUS(OK, file_write(test_path(folder, "tokenizer.json"), file.data, file.len));
    CHECK_STATUS(OK,
                 file_write(test_path(folder, "tokenizer_config.json"), config, strlen(config)));
    text_release(&file);
    return tokenizer_open(t, folder, &(struct tokenizer_config){0});
}

/* Expected values: tests/oracle/torchtitan_tokenizer.py; it has no EOS that is also BOS. */
TEST(hf_json_takes_bos_and_eos_from_tokenizer_config)
{
    static const char both[] = "{\"id\": 257, \"content\": \"<|begin_of_text|>\"},"
                               "{\"id\": 258, \"content\": \"<|end_of_text|>\"}";
    static const struct {
        const char *added, *config;
        int32_t bos, eos, size;
    } cases[] = {
        {"", "{\"bos_token\": \"<b>\", \"eos_token\": {\"content\": \"<e>\"}}", 257, 258, 259},
        {"", "{\"bos_token\": \"<pad>\", \"eos_token\": null}", 256, -1, 257},
        {both, "{}", -1, -1, 259},
        {both, "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|eot_id|>\"}", 257, 259,
         260},
        {both, "{\"bos_token\": \"<b>\", \"eos_token\": \"<b>\"}", 259, 259, 260},
        {both, "{\"eos_token\": \"<|end_of_text|>\", \"add_eos_token\": false}", -1, 258, 259},
    };
    struct tokenizer *t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(OK, open_with_config(&t, cases[i].added, cases[i].config));
        CHECK(tokenizer_bos(t) == cases[i].bos && tokenizer_eos(t) == cases[i].eos);
        CHECK(tokenizer_vocab_size(t) == cases[i].size);
        CHECK_IDS(t, "<b>ab", '<', 'b', '>', 'a', 'b');
        tokenizer_close(t);
    }
    CHECK_STATUS(DATA, open_with_config(&t, "", "{\"bos_token\": 3}"));
    CHECK_MESSAGE("bos_token: expected a string, or an object with \"content\"");
    CHECK_STATUS(DATA, open_with_config(&t, "", "{"));
    CHECK_MESSAGE("tokenizer_config.json");
}

TEST(hf_json_knows_deepseek_s_bos_and_eos)
{
    struct tokenizer *t;
    struct text file = {0};
    write_json(
        &file,
        &(struct json_parts){
            .added_tokens =
                "{\"id\": 257, \"content\": \"<\uFF5Cend\u2581of\u2581sentence\uFF5C>\"},"
                "{\"id\": 256, \"content\": \"<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>\"}"});
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &file));
    CHECK(tokenizer_bos(t) == 256 && tokenizer_eos(t) == 257);
    tokenizer_close(t);
    text_release(&file);
}

/* A checkpoint's folder: the named tokens are not in tokenizer.json. */
TEST(hf_json_named_tokens_survive_a_checkpoint)
{
    struct tokenizer *t, *again;
    struct hf_folder f;
    const char *folder = test_folder();
    CHECK_STATUS(OK, open_with_config(&t, "", "{\"bos_token\": \"<b>\", \"eos_token\": \"<e>\"}"));
    CHECK_STATUS(OK, tokenizer_copy(t, folder));
    hf_folder_make(&f, t, &(struct hf_folder_options){.bos = -1, .eos = -1});
    for (int i = 0; i < HF_FOLDER_FILES; i++)
        if (f.files[i].text.len)
            CHECK_STATUS(OK, file_write(test_path(folder, f.files[i].name), f.files[i].text.data,
                                        f.files[i].text.len));
    CHECK_STATUS(OK, tokenizer_open(&again, folder, &(struct tokenizer_config){0}));
    CHECK(tokenizer_bos(again) == 257 && tokenizer_eos(again) == 258);
    CHECK(tokenizer_vocab_size(again) == tokenizer_vocab_size(t));
    hf_folder_release(&f);
    tokenizer_close(t), tokenizer_close(again);
}

#define TWO_STEPS(a, b) "{\"type\": \"Sequence\", \"pretokenizers\": [" a ", " b "]}"
#define SPLIT_STEP                                                                                 \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Isolated\"}"
#define BYTE_STEP "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"

TEST(hf_json_rejects_unsupported_components_by_name)
{
    static const struct {
        struct json_parts parts;
        const char *why;
    } rows[] = {
        {{.pre = "null"}, "pre_tokenizer"},
        {{.pre = "{\"type\": \"Whitespace\"}"}, "pre_tokenizer"},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [" SPLIT_STEP "]}"}, "ByteLevel"},
        {{.pre = TWO_STEPS("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
                           "\"Isolated\"}",
                           BYTE_STEP)},
         "does not compile"},
        {{.model = "\"byte_fallback\": true,"}, "ByteLevel is only supported with byte-level BPE"},
        {{.model = "\"dropout\": 0.1,"}, "dropout"},
        {{.model = "\"continuing_subword_prefix\": \"##\","}, "continuing_subword_prefix"},
        {{.model = "\"end_of_word_suffix\": \"</w>\","}, "end_of_word_suffix"},
        {{.vocab = ", \"\": 256"}, "alphabet"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        enum status st = open_parts(&t, &rows[i].parts);
        if (st != STATUS_UNSUPPORTED || !strstr(status_message(), rows[i].why))
            fail_msg("row %zu: %s: %s", i, status_name(st), st ? status_message() : "");
        CHECK_MESSAGE("tokenizer.json: ");
    }
    CHECK_STATUS(UNSUPPORTED, opens("tokenizer.json", "{\"normalizer\": {\"type\": \"Odd\"}}"));
    CHECK_MESSAGE("normalizer Odd");
    CHECK_STATUS(UNSUPPORTED, opens("tokenizer.json", "{\"model\": {\"type\": \"WordPiece\"}}"));
    CHECK_MESSAGE("WordPiece");
}

/* As in torchtitan's test tokenizer.  The IDs are those of Hugging Face's tokenizers. */
TEST(hf_json_drops_bytes_without_a_token_and_keeps_unreachable_tokens)
{
    static const char json[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
        "true}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"\\u0000\": 0, \"a\": 97, \"b\": 98, "
        "\"c\": 99, \"\\\\xbc\": 188, \" the\": 262, \"ab\": 1%s}, \"merges\": [\"a b\"]}}";
    struct text file = {0}, back = {0};
    struct tokenizer *t;
    text_addf(&file, json, "");
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &file));
    CHECK(tokenizer_vocab_size(t) == 263);
    CHECK_IDS(t, "ab a b, axb ca\xC3\xA9 the", 1, 97, 98, 1, 99, 97);
    CHECK_STATUS(OK, tokenizer_decode(t, (const int32_t[]){262, 97}, 2, &back));
    CHECK(!strcmp(back.data, " thea"));
    text_clear(&back);
    CHECK_STATUS(OK, tokenizer_decode(t, (const int32_t[]){0, 97}, 2, &back));
    CHECK(back.len == 2 && !memcmp(back.data, "\0a", 2));
    text_release(&back);
    tokenizer_close(t);
    static const char *const twice[] = {", \" one\": 262", ", \" one\": 97"};
    for (int i = 0; i < 2; i++) {
        text_clear(&file);
        text_addf(&file, json, twice[i]);
        CHECK_STATUS(DATA, open_bytes(&t, "tokenizer.json", &file));
        CHECK_MESSAGE("occurs twice");
    }
    text_release(&file);
}

TEST(hf_json_non_special_added_tokens_still_merge)
{
    const char *added = "{\"id\": 256, \"content\": \"ab\", \"special\": false, \"single_word\": "
                        "true}";
    struct tokenizer *t = open_with((struct json_parts){.added_tokens = added});
    CHECK_IDS(t, "ab", 256);
    CHECK_IDS(t, "1ab", '1', 256);
    CHECK_IDS(t, "abc", 258);
    tokenizer_close(t);
}

TEST(hf_json_matches_normalized_added_tokens_in_normalized_text)
{
    const char *added = "{\"id\": 300, \"content\": \"\xE2\x84\xAB\", \"special\": false, "
                        "\"normalized\": true}, {\"id\": 301, \"content\": \"A\xCC\x8A\", "
                        "\"special\": false, \"normalized\": false}";
    struct tokenizer *t =
        open_with((struct json_parts){.added_tokens = added, .normalizer = "{\"type\": \"NFC\"}"});
    CHECK_IDS(t, "\xC3\x85 A\xCC\x8A", 300, ' ', 301);
    tokenizer_close(t);
}

TEST(hf_json_names_a_normalized_added_token_that_is_too_long)
{
    struct tokenizer *t;
    struct text file = {0}, added = {0};
    text_adds(&added, "{\"id\": 300, \"content\": \"<long");
    for (int i = 0; i <= MATCHER_MAX_BYTES; i++) text_adds(&added, "x");
    text_adds(&added, "\", \"normalized\": true}");
    write_json(&file, &(struct json_parts){.added_tokens = added.data,
                                           .normalizer = "{\"type\": \"NFC\"}"});
    CHECK_STATUS(UNSUPPORTED, open_bytes(&t, "tokenizer.json", &file));
    CHECK_MESSAGE(
        "tokenizer.json: the added token with ID 300: 1030 bytes; tokens that are matched "
        "in text have at most 1024");
    CHECK(strstr(status_stack(), "matcher.c"));
    text_release(&added);
    text_release(&file);
}

TEST(hf_json_accepts_settings_that_do_nothing)
{
    struct tokenizer *t = open_with((struct json_parts){
        .model = "\"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\","
                 "\"end_of_word_suffix\": \"\", \"byte_fallback\": false,"});
    CHECK_IDS(t, "abc", 258);
    tokenizer_close(t);
}

TEST(hf_json_rejects_invalid_values_by_name)
{
    static const struct {
        struct json_parts parts;
        const char *why;
    } rows[] = {
        {{.vocab = ", \"ab\": 97"}, "97"},
        {{.vocab = ", \"ab\": -1"}, "\"ab\""},
        {{.vocab = ", \"ab\": 256.5"}, "\"ab\""},
        {{.vocab = ", \"ab\": \"x\""}, "\"ab\""},
        {{.vocab = ", \"ab\": 1e300"}, "\"ab\""},
        {{.vocab = ", \"ab\": 2147483647"}, "\"ab\""},
        {{.vocab = ", \"ab\": 256, \"ab\": 257"}, "duplicate key"},
        {{.merges = "\"a b\""}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "\"a b\", \"b a\""}, "merge 1"},
        {{.vocab = ", \"ab\": 256", .merges = "\"ab\""}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "\"a b c\""}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "\" ab\""}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "[\"a\"]"}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "[\"a\", \"b\", \"c\"]"}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "[1, 2]"}, "merge 0"},
        {{.vocab = ", \"ab\": 256", .merges = "null"}, "merge 0"},
        {{.added_tokens = "7"}, "added token"},
        {{.added_tokens = "{\"id\": 300}"}, "content"},
        {{.added_tokens = "{\"content\": \"x\"}"}, "id"},
        {{.added_tokens = "{\"id\": -1, \"content\": \"x\"}"}, "id"},
        {{.added_tokens = "{\"id\": 1e9, \"content\": \"x\"}"}, "id"},
        {{.added_tokens = "{\"id\": 97, \"content\": \"x\"}"}, "the same ID"},
        {{.added_tokens = "{\"id\": 300, \"content\": \"x\"}, {\"id\": 300, \"content\": \"y\"}"},
         "300"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        enum status st = open_parts(&t, &rows[i].parts);
        if (st != STATUS_DATA || !strstr(status_message(), rows[i].why))
            fail_msg("row %zu: %s: %s", i, status_name(st), st ? status_message() : "");
        CHECK_MESSAGE("tokenizer.json: ");
    }
}

TEST(hf_json_rejects_missing_parts)
{
    static const char *const files[] = {
        "{",
        "{}",
        "{\"model\": {}}",
        "{\"model\": 7}",
        "{\"pre_tokenizer\": 7}",
        "{\"pre_tokenizer\": " BYTE_STEP "}",
        "{\"pre_tokenizer\": " BYTE_STEP ", \"model\": {\"vocab\": [], \"merges\": []}}",
        "{\"pre_tokenizer\": " BYTE_STEP ", \"model\": {\"vocab\": {}, \"merges\": []}}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        enum status st = opens("tokenizer.json", files[i]);
        CHECK(st == STATUS_DATA || st == STATUS_UNSUPPORTED);
        CHECK_MESSAGE("tokenizer.json: ");
    }
}

TEST(hf_json_rejects_files_truncated_at_every_byte)
{
    struct text file = {0}, cut = {0};
    struct tokenizer *t = NULL;
    write_json(&file, &(struct json_parts){.vocab = ",\"ab\":256", .merges = "\"a b\""});
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &file));
    tokenizer_close(t);
    for (size_t len = file.len; len-- > 0;) {
        text_clear(&cut);
        text_add(&cut, file.data, len);
        CHECK_STATUS(DATA, open_bytes(&t, "tokenizer.json", &cut));
        CHECK_MESSAGE(len ? "tokenizer.json: not valid JSON" : "tokenizer.json: the file is empty");
    }
    text_release(&file), text_release(&cut);
}
