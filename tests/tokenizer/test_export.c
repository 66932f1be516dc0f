// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "tokenizer/export.h"
#include "tokenizer/rig.h"

#include <string.h>

static struct tokenizer *opened(const char *path)
{
    struct tokenizer *t = NULL;
    CHECK_STATUS(OK, tokenizer_open(&t, path, &(struct tokenizer_config){0}));
    return t;
}

static bool text_is(const struct token_table *e, struct exported_text x, const char *want)
{
    return x.len == strlen(want) && !memcmp(e->texts.data + x.at, want, x.len);
}

TEST(byte_level_export_has_alphabet_tokens_and_ordered_merges)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small.json");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(t, &e));
    CHECK(e.has_merges && !strcmp(e.splitter, "llama3") && !e.ignore_merges && e.unknown == -1);
    CHECK(e.num_tokens == tokenizer_vocab_size(t) && e.num_merges > 100);
    CHECK(e.tokens[997].kind == TOKEN_CONTROL && e.tokens[0].kind == TOKEN_NORMAL);
    CHECK(text_is(&e, e.tokens[997].text, "<|begin_of_text|>"));
    int spaces = 0, quotes = 0;
    for (int i = 0; i < e.num_tokens; i++) {
        spaces += text_is(&e, e.tokens[i].text, "\xC4\xA0"); /* U+0120 */
        quotes += text_is(&e, e.tokens[i].text, "\"");
    }
    CHECK(spaces == 1 && quotes == 1);
    /* the file lists the first merge before the second */
    struct text file = {0}, first = {0}, second = {0};
    CHECK_STATUS(OK, file_read("tests/tokenizer/data/small.json", 1 << 20, &file));
    const char *list = strstr(file.data, "\"merges\"");
    CHECK(list != NULL);
    struct text *parts[] = {&first, &second};
    for (int i = 0; i < 2; i++) {
        const char *merge = e.texts.data + e.merges[i].at, *space = memchr(merge, ' ', 9);
        CHECK(space != NULL);
        int left = (int)(space - merge), right = (int)e.merges[i].len - left - 1;
        text_addf(parts[i], "\"%.*s\", \"%.*s\"", left, merge, right, space + 1);
        if (!strstr(list, parts[i]->data)) {
            text_clear(parts[i]);
            text_addf(parts[i], "\"%.*s\"", (int)e.merges[i].len, merge);
        }
    }
    const char *one = strstr(list, first.data), *two = strstr(list, second.data);
    CHECK(one && two && one < two);
    text_release(&file), text_release(&first), text_release(&second);
    token_table_release(&e);
    tokenizer_close(t);
}

TEST(tiktoken_export_has_all_splits_as_merges)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small/tokenizer.model");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(t, &e));
    CHECK(e.has_merges && e.ignore_merges && !strcmp(e.splitter, "llama3"));
    CHECK(e.num_tokens == 1253 && e.num_merges >= 997 - 256);
    CHECK(text_is(&e, e.tokens[1006].text, "<|eot_id|>") && e.tokens[1006].kind == TOKEN_CONTROL);
    token_table_release(&e);
    tokenizer_close(t);
}

TEST(sentencepiece_export_has_scores_and_types)
{
    struct tokenizer *t = opened("tests/tokenizer/data/sentence_bytes.model");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(t, &e));
    CHECK(!e.has_merges && !e.num_merges && e.unknown == 0 && e.num_tokens == 420);
    CHECK(e.tokens[0].kind == TOKEN_UNKNOWN && e.tokens[1].kind == TOKEN_CONTROL);
    int bytes = 0, scored = 0;
    for (int i = 0; i < e.num_tokens; i++) {
        bytes += e.tokens[i].kind == TOKEN_BYTE;
        scored += e.tokens[i].score < 0;
    }
    CHECK(bytes == 256 && scored > 100);
    token_table_release(&e);
    tokenizer_close(t);
}

TEST(bytes_export_has_no_merges)
{
    struct tokenizer *t = opened("bytes");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(t, &e));
    CHECK(e.has_merges && !e.num_merges && e.num_tokens == 259);
    CHECK(text_is(&e, e.tokens['A'].text, "A") && text_is(&e, e.tokens[0].text, "\xC4\x80"));
    token_table_release(&e);
    tokenizer_close(t);
}

/* Opens a tokenizer.json with byte_fallback and these tokens and merges. */
static struct tokenizer *opened_json(const char *tokens, const char *merges, const char *more)
{
    const char *path = test_path(test_folder(), "tokenizer.json");
    struct text json = {0};
    text_adds(&json, "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true, "
                     "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                     "\"normalized\": false}], \"normalizer\": {\"type\": \"Replace\", "
                     "\"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}, "
                     "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                     "\"pattern\": {\"String\": \"\\u2581\"}, \"content\": \" \"}, "
                     "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, "
                     "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, "
                     "\"fuse_unk\": true, \"unk_token\": \"<unk>\", ");
    text_addf(&json, "%s\"vocab\": {\"<unk>\": 0", more);
    for (int i = 0; i < 256; i++) text_addf(&json, ", \"<0x%02X>\": %d", i, i + 1);
    text_addf(&json, ", %s}, \"merges\": [%s]}}", tokens, merges);
    CHECK_STATUS(OK, file_write(path, json.data, json.len));
    text_release(&json);
    return opened(path);
}

#define LETTERS "\"a\": 257, \"b\": 258, \"\\u2581\": 259, "

TEST(byte_fallback_export_scores_follow_merge_order)
{
    struct tokenizer *t = opened_json(
        LETTERS "\"ab\": 260, \"\\u2581ab\": 261, \"ba\": 262, \"\\u2581\\u2581\": 263, "
                "\"\\u2581\\u2581\\u2581\": 264, \"\\u2581a\": 265",
        "\"b a\", \"a b\", \"\\u2581\\u2581 \\u2581\", \"\\u2581 \\u2581\", "
        "\"\\u2581 \\u2581\\u2581\", \"\\u2581 a\", \"\\u2581 ab\", \"\\u2581a b\"",
        "");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(t, &e));
    CHECK(!e.has_merges && !e.adds_space && e.unknown == 0 && e.num_tokens == 266);
    CHECK(e.tokens[0].kind == TOKEN_UNKNOWN && e.tokens[1].kind == TOKEN_BYTE);
    CHECK(e.tokens[260].kind == TOKEN_NORMAL && text_is(&e, e.tokens[256].text, "<0xFF>"));
    CHECK(text_is(&e, e.tokens[261].text,
                  "\xE2\x96\x81"
                  "ab"));
    CHECK(e.tokens[262].score > e.tokens[260].score && e.tokens[260].score > e.tokens[263].score);
    CHECK(e.tokens[263].score == e.tokens[264].score); /* runs, whose merges are interleaved */
    CHECK(e.tokens[264].score > e.tokens[265].score && e.tokens[265].score > e.tokens[261].score);
    token_table_release(&e);
    tokenizer_close(t);
}

TEST(export_rejects_merges_that_no_scores_reproduce)
{
    static const struct {
        const char *tokens, *merges, *more, *message;
    } cases[] = {
        {LETTERS "\"ab\": 260, \"aba\": 261", "\"a b\", \"ab a\"", "", NULL},
        {LETTERS "\"ab\": 260, \"ba\": 261, \"aba\": 262", "\"a b\", \"b a\", \"ab a\"", "",
         "tokens 257 and 261 concatenate to token 262, but do not merge"},
        {LETTERS "\"ab\": 260, \"ba\": 261, \"aba\": 262, \"bb\": 263",
         "\"a b\", \"b a\", \"ab a\", \"b b\", \"a ba\"", "", "are interleaved"},
        {LETTERS "\"ab\": 260", "\"a b\"", "\"ignore_merges\": true, ", "with ignore_merges"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = opened_json(cases[i].tokens, cases[i].merges, cases[i].more);
        struct token_table e;
        if (cases[i].message) {
            CHECK_STATUS(UNSUPPORTED, export_token_table(t, &e));
            CHECK_MESSAGE(cases[i].message);
        } else {
            CHECK_STATUS(OK, export_token_table(t, &e));
            token_table_release(&e);
        }
        tokenizer_close(t);
    }
}

/* Opens a byte-level tokenizer.json with one merge and these pre_tokenizers. */
static struct tokenizer *opened_with(const char *steps, const char *normalizer)
{
    const char *path = test_path(test_folder(), "tokenizer.json");
    struct text json = {0};
    text_addf(&json,
              "{\"added_tokens\": [], \"normalizer\": %s, \"pre_tokenizer\": {\"type\": "
              "\"Sequence\", \"pretokenizers\": [%s]}, \"decoder\": {\"type\": \"ByteLevel\"}, "
              "\"model\": {\"type\": \"BPE\", \"merges\": [\"a b\"], \"vocab\": {",
              normalizer, steps);
    struct tokenizer *bytes = opened("bytes");
    struct token_table e;
    CHECK_STATUS(OK, export_token_table(bytes, &e));
    for (int i = 0; i < 256; i++) {
        char encoded[8] = {0};
        memcpy(encoded, e.texts.data + e.tokens[i].text.at, e.tokens[i].text.len);
        text_adds(&json, i ? ", " : "");
        json_quote(&json, encoded);
        text_addf(&json, ": %d", i);
    }
    text_adds(&json, ", \"ab\": 256}}}");
    token_table_release(&e);
    tokenizer_close(bytes);
    CHECK_STATUS(OK, file_write(path, json.data, json.len));
    text_release(&json);
    return opened(path);
}

#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define SPLIT(regex)                                                                               \
    "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": "           \
    "{\"Regex\": \"" regex "\"}}"
#define DIGITS(alone) "{\"type\": \"Digits\", \"individual_digits\": " alone "}, "

TEST(export_names_the_splitters_of_known_models)
{
    static const char qwen2[] =
        "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": "
        "{\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
        "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
        "\\\\s+\"}}, " BYTE_LEVEL("false");
    static const struct {
        const char *steps, *normalizer, *name;
    } cases[] = {
        {BYTE_LEVEL("true"), "null", "gpt2"},
        {qwen2, "{\"type\": \"NFC\"}", "qwen2"},
        {DIGITS("true") BYTE_LEVEL("true"), "null", "digits gpt2"},
        {SPLIT("\\\\p{N}{1,3}") ", " SPLIT("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+") ", " SPLIT(
             "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
             "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+"
             "[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+") ", " BYTE_LEVEL("false"),
         "null", "deepseek-v3"},
        {"{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}, " BYTE_LEVEL(
             "true") ", " DIGITS("false") SPLIT("[0-9][0-9][0-9]"),
         "null", "falcon"},
        {SPLIT(" ?[^(\\\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+") ", " BYTE_LEVEL(
             "false"),
         "null", "bloom"},
        {DIGITS("false") BYTE_LEVEL("true"), "null", NULL},
        {SPLIT("\\\\p{N}{1,3}") ", " BYTE_LEVEL("false"), "null", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = opened_with(cases[i].steps, cases[i].normalizer);
        struct token_table e;
        if (cases[i].name) {
            CHECK_STATUS(OK, export_token_table(t, &e));
            CHECK(!strcmp(e.splitter, cases[i].name) && e.normalizes == (i == 1));
            token_table_release(&e);
        } else {
            CHECK_STATUS(UNSUPPORTED, export_token_table(t, &e));
            CHECK_MESSAGE(
                "the pre_tokenizer must be that of Llama 3, Qwen 2, SmolLM, GPT-2, GPT-4o");
        }
        tokenizer_close(t);
    }
}
