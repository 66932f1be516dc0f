// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/json.h"
#include "tokenizer/files/hf_pipeline.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer_impl.h"

TEST(hf_pipelines_of_known_models_match_the_tokenizers_library)
{
    struct json *root;
    const char *tail, *string;
    CHECK_STATUS(OK, json_read("tests/tokenizer/data/pipelines.json", 1 << 20, &root));
    CHECK_STATUS(OK, json_get_string(root, "tail", &tail));
    const struct json *head = json_first(json_get(root, "heads"));
    CHECK(json_count(json_get(root, "heads")) >= 20 && json_count(json_get(root, "rows")) >= 50);
    for (; head; head = json_next(head)) {
        struct text file = {0};
        struct tokenizer *t = NULL;
        text_addf(&file, "%s%s", json_string(head), tail);
        CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &file));
        const struct json *row = json_first(json_get(root, "rows"));
        for (; row; row = json_next(row)) {
            int32_t want[1024];
            size_t count = 0;
            CHECK_STATUS(OK, json_get_string(row, "text", &string));
            const struct json *id = json_first(json_get(row, json_key(head)));
            for (; id && count < 1024; id = json_next(id)) want[count++] = (int32_t)json_number(id);
            if (!ids_are(t, string, want, count)) fail_msg("%s: \"%s\"", json_key(head), string);
        }
        tokenizer_close(t);
        text_release(&file);
    }
    json_free(root);
}

/* Reads a pre_tokenizer into *t. */
static enum status read_pre(struct tokenizer *t, const char *pre)
{
    struct json *v;
    *t = (struct tokenizer){.path = (char[]){"tokenizer.json"}};
    CHECK_STATUS(OK, json_parse(pre, strlen(pre), "pre", &v));
    enum status st = hf_pipeline_read_pre_tokenizer(t, v);
    json_free(v);
    return st;
}

#define SEQUENCE(...) "{\"type\": \"Sequence\", \"pretokenizers\": [" __VA_ARGS__ "]}"
#define BYTES         "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define GPT2          "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

TEST(hf_pipeline_calls_a_lone_splitter_directly)
{
    struct tokenizer t;
    CHECK_STATUS(OK, read_pre(&t, GPT2));
    CHECK(t.split == split_gpt2 && !t.pre_tokenizer.count);
    CHECK_STATUS(OK, read_pre(&t, SEQUENCE(SEQUENCE() ", " GPT2)));
    CHECK(t.split == split_gpt2 && !t.pre_tokenizer.count);
    CHECK_STATUS(OK, read_pre(&t, BYTES));
    CHECK(!t.split && !t.pre_tokenizer.count);
    CHECK_STATUS(OK, read_pre(&t, SEQUENCE("{\"type\": \"Digits\"}, " GPT2)));
    CHECK(!t.split && t.pre_tokenizer.count == 2 &&
          t.pre_tokenizer.rules[0].behavior == SPLIT_CONTIGUOUS);
    CHECK_STATUS(OK, read_pre(&t, "{\"type\": \"ByteLevel\"}"));
    CHECK(!t.split && t.pre_tokenizer.count == 1 && t.pre_tokenizer.rules[0].adds_prefix_space);
    CHECK_STATUS(OK, read_pre(&t, SEQUENCE(GPT2 ", {\"type\": \"Punctuation\"}")));
    CHECK(!t.pre_tokenizer.rules[0].in_byte_alphabet && t.pre_tokenizer.rules[1].in_byte_alphabet);
    CHECK_STATUS(OK, read_pre(&t, SEQUENCE(GPT2 ", {\"type\": \"Whitespace\"}")));
    CHECK(t.pre_tokenizer.count == 3 && t.pre_tokenizer.rules[2].marks == UNICODE_WORD);
    CHECK(t.pre_tokenizer.rules[1].in_byte_alphabet && t.pre_tokenizer.rules[2].in_byte_alphabet);
    pre_tokenizer_release(&t.pre_tokenizer);
}

TEST(hf_pipeline_rejects_unsupported_pre_tokenizers_by_name)
{
    static const char *const rows[][2] = {
        {"null", "without a type"},
        {SEQUENCE(), "a ByteLevel pre_tokenizer is required"},
        {SEQUENCE("7"), "without a type"},
        {SEQUENCE("{\"type\": \"Digits\"}"), "a ByteLevel pre_tokenizer is required"},
        {"{\"type\": \"Whitespace\"}", "a ByteLevel pre_tokenizer is required"},
        {SEQUENCE("{\"type\": \"Metaspace\"}, " BYTES), "pre_tokenizer Metaspace"},
        {SEQUENCE("{\"type\": \"UnicodeScripts\"}, " BYTES), "pre_tokenizer UnicodeScripts"},
        {SEQUENCE(BYTES ", " BYTES), "only one ByteLevel"},
        {SEQUENCE("{\"type\": \"Split\", \"behavior\": \"Isolated\"}, " BYTES), "must be a Regex"},
        {SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, \"behavior\": "
                  "\"Isolated\"}, " BYTES),
         "must be a Regex"},
        {SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}}, " BYTES), "behavior"},
        {SEQUENCE("{\"type\": \"Punctuation\", \"behavior\": \"Odd\"}, " BYTES), "\"Odd\""},
    };
    struct tokenizer t;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum status st = read_pre(&t, rows[i][0]);
        pre_tokenizer_release(&t.pre_tokenizer);
        if (st != STATUS_UNSUPPORTED || !strstr(status_message(), rows[i][1]))
            fail_msg("row %zu: %s", i, st ? status_message() : "read");
        CHECK_MESSAGE("tokenizer.json: ");
    }
}

TEST(hf_pipeline_rejects_too_many_pre_tokenizers)
{
    struct tokenizer t;
    struct text pre = {0};
    text_adds(&pre, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    for (int i = 0; i <= PRE_TOKENIZER_MAX_RULES; i++) text_adds(&pre, "{\"type\": \"Digits\"}, ");
    text_adds(&pre, BYTES "]}");
    CHECK_STATUS(UNSUPPORTED, read_pre(&t, pre.data));
    CHECK_MESSAGE("more than 16");
    text_release(&pre);
}

TEST(hf_pipeline_reads_lone_nfc_and_nfd_normalizers_as_a_form)
{
    static const struct {
        const char *normalizer;
        enum unicode_form form;
        const char *why; /* NULL: accepted */
    } rows[] = {
        {"null", FORM_NONE, NULL},
        {"{\"type\": \"NFC\"}", FORM_NFC, NULL},
        {"{\"type\": \"NFD\"}", FORM_NFD, NULL},
        {"{\"type\": \"Sequence\", \"normalizers\": []}", FORM_NONE, NULL},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": \"NFC\"}]}",
         FORM_NFC, NULL},
        {"{\"type\": \"NFKC\"}", FORM_NONE, NULL},
        {"{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
         "\"Lowercase\"}]}",
         FORM_NONE, NULL},
        {"{\"type\": \"BertNormalizer\"}", FORM_NONE, "normalizer BertNormalizer"},
        {"[7]", FORM_NONE, "without a type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer t = {.path = (char[]){"tokenizer.json"}};
        struct json *v;
        const char *text = rows[i].normalizer;
        CHECK_STATUS(OK, json_parse(text, strlen(text), "normalizer", &v));
        enum status st = hf_pipeline_read_normalizer(&t, v);
        CHECK(t.normal_form == rows[i].form && !st == !rows[i].why);
        if (rows[i].why) CHECK_MESSAGE(rows[i].why);
        normalizer_release(&t.normalizer);
        json_free(v);
    }
}
