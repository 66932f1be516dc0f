// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/files/hf_normalizer.h"

static enum status read(const char *json)
{
    struct json *v;
    struct normalizer n = {0};
    CHECK_STATUS(OK, json_parse(json, strlen(json), "normalizer", &v));
    enum status st = hf_normalizer_read(&n, v, "tokenizer.json");
    normalizer_release(&n);
    json_free(v);
    return st;
}

TEST(hf_normalizer_rejects_malformed_components_by_name)
{
    static const struct {
        const char *json, *why;
        enum status status;
    } rows[] = {
        {"[7]", "without a type", STATUS_UNSUPPORTED},
        {"{\"type\": \"ByteLevel\"}", "normalizer ByteLevel", STATUS_UNSUPPORTED},
        {"{\"type\": \"Replace\", \"content\": \"\"}", "Replace: expected", STATUS_UNSUPPORTED},
        {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}", "not empty",
         STATUS_UNSUPPORTED},
        {"{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(\"}, \"content\": \"\"}",
         "does not compile", STATUS_UNSUPPORTED},
        {"{\"type\": \"Prepend\"}", "\"prepend\" must be a string", STATUS_DATA},
        {"{\"type\": \"Precompiled\"}", "must be a string", STATUS_DATA},
        {"{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"?\"}", "base64", STATUS_DATA},
        {"{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}",
         "Precompiled: precompiled_charsmap", STATUS_DATA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum status st = read(rows[i].json);
        if (st != rows[i].status || !strstr(status_message(), rows[i].why))
            fail_msg("row %zu: %s: %s", i, status_name(st), st ? status_message() : "");
        CHECK_MESSAGE("tokenizer.json: ");
    }
    CHECK_STATUS(OK,
                 read("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKD\"}, null]}"));
}

TEST(hf_normalizer_rejects_too_many_steps)
{
    struct text json = {0};
    text_adds(&json, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i <= NORMALIZER_MAX_STEPS; i++)
        text_addf(&json, "%s{\"type\": \"NFC\"}", i ? ", " : "");
    text_adds(&json, "]}");
    CHECK_STATUS(UNSUPPORTED, read(json.data));
    CHECK_MESSAGE("more than 16 normalizers");
    text_release(&json);
}
