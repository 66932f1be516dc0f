// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/files/hf_normalizer.h"

/* Whether the normalizer changes `text` to `want`; tests/oracle/unigram.py compares more with the
 * tokenizers library. */
static bool normalizes(const char *json, const char *text, const char *want, bool drops_start)
{
    struct json *v;
    struct normalizer n = {0};
    struct normalizer_scratch s;
    const unsigned char *out;
    size_t len;
    CHECK_STATUS(OK, json_parse(json, strlen(json), "normalizer", &v));
    CHECK_STATUS(OK, hf_normalizer_read(&n, v, "tokenizer.json"));
    normalizer_scratch_init(&s, &n);
    CHECK_STATUS(OK, normalizer_run(&s, (const unsigned char *)text, strlen(text), &out, &len));
    bool same = len == strlen(want) && !memcmp(out, want, len) && s.drops_start == drops_start;
    if (!same) print_error("%s: \"%.*s\"\n", json, (int)len, (const char *)out);
    normalizer_scratch_release(&s);
    normalizer_release(&n);
    json_free(v);
    return same;
}

#define STEP(type) "{\"type\": \"" type "\"}"
#define REGEX(pattern, by)                                                                         \
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"content\": \"" by "\"}"
#define STRING(pattern, by)                                                                        \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" pattern "\"}, \"content\": \"" by "\"}"

TEST(normalizer_changes_letters_and_forms)
{
    CHECK(normalizes("null", "A", "A", false));
    CHECK(normalizes(STEP("Lowercase"), "\xC3\x84 I\xFFX", "\xC3\xA4 i\xFFx", false));
    CHECK(normalizes(STEP("Lowercase"), "\xC4\xB0", "i\xCC\x87", false)); /* one to two */
    CHECK(normalizes(STEP("StripAccents"), "e\xCC\x81x\xC3\xA9", "ex\xC3\xA9", false));
    CHECK(normalizes(STEP("StripAccents"), "\xCC\x81x", "x", true));
    CHECK(normalizes(STEP("NFKC"), "\xEF\xAC\x81\xEF\xBC\xA1", "fiA", false));
    CHECK(normalizes(STEP("NFC"), "plain", "plain", false));
}

TEST(normalizer_stops_replacements_that_multiply_the_text)
{
    enum { STEPS = 12 };
    struct text json = {0};
    struct json *v;
    struct normalizer n = {0};
    struct normalizer_scratch s;
    const unsigned char *out;
    size_t len;
    text_adds(&json, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < STEPS; i++)
        text_addf(&json, "%s" STRING("a", "aaaaaaaaaaaaaaaa"), i ? ", " : "");
    text_adds(&json, "]}");
    CHECK_STATUS(OK, json_parse(json.data, json.len, "normalizer", &v));
    CHECK_STATUS(OK, hf_normalizer_read(&n, v, "tokenizer.json"));
    normalizer_scratch_init(&s, &n);
    CHECK_STATUS(RECORD, normalizer_run(&s, (const unsigned char *)"a", 1, &out, &len));
    CHECK_MESSAGE("over 67108872 bytes when normalized");
    normalizer_scratch_release(&s);
    normalizer_release(&n);
    json_free(v);
    text_release(&json);
}

TEST(normalizer_strips_and_replaces)
{
    static const char *const left = "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": "
                                    "false}";
    CHECK(normalizes(left, " \xE3\x80\x80 a ", "a ", true));
    CHECK(normalizes(STEP("Strip"), "a \xC2\xA0", "a", false));
    CHECK(normalizes(STEP("Strip"), " \n", "", true));
    CHECK(normalizes(REGEX(" {2,}", "-"), "a   b c  ", "a-b c-", false));
    CHECK(normalizes(REGEX("\\\\Aa", ""), "aab", "ab", true));
    CHECK(normalizes(STRING("aa", "b"), "aaaaa", "bba", false));
    CHECK(normalizes("{\"type\": \"Prepend\", \"prepend\": \"x\"}", "a", "xa", false));
    CHECK(normalizes("{\"type\": \"Prepend\", \"prepend\": \"x\"}", "", "", false));
    CHECK(normalizes(STEP("Nmt"),
                     "\x01"
                     "a\tb\xE2\x80\x8B"
                     "c\x7F",
                     "a b c", true));
    CHECK(normalizes("{\"type\": \"Sequence\", \"normalizers\": [" STEP("NFD") ", " STEP(
                         "StripAccents") ", " STRING("e", "o") "]}",
                     "\xC3\xA9t\xC3\xA9", "oto", false));
}
