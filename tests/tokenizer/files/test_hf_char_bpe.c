// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/json.h"

#define SPACE   "\xE2\x96\x81"
#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"" SPACE "\"}"
#define REPLACE_BY(from, to)                                                                       \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" from "\"}, \"content\": \"" to "\"}"
#define REPLACE REPLACE_BY(" ", SPACE)
#define BACK    REPLACE_BY(SPACE, " ")
#define STRIP   "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
#define LLAMA2  "{\"type\": \"Sequence\", \"normalizers\": [" PREPEND ", " REPLACE "]}"
#define DECODER                                                                                    \
    "{\"type\": \"Sequence\", \"decoders\": [" BACK                                                \
    ", {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, " STRIP "]}"
#define METASPACE(scheme, split)                                                                   \
    "{\"type\": \"Metaspace\", \"replacement\": \"" SPACE "\", \"prepend_scheme\": \"" scheme      \
    "\", \"split\": " split "}"

struct parts {
    const char *normalizer, *pre, *decoder; /* NULL: Llama 2's */
    const char *added_tokens, *vocab, *merges, *model;
    int bytes;           /* number of byte tokens to omit */
    bool has_no_unknown; /* no unk_token */
};

/* IDs: 0 unknown, 1 BOS, 2 EOS, from 3 the bytes, from 259 a, b, space, " a", "ab", " ab". */
static enum status open_parts(struct tokenizer **t, struct parts p)
{
    struct text file = {0};
    *t = NULL;
    text_addf(&file,
              "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}, "
              "{\"id\": 2, \"content\": \"</s>\", \"special\": true}%s], \"normalizer\": %s, "
              "\"pre_tokenizer\": %s, \"decoder\": %s, \"model\": {\"type\": \"BPE\", %s"
              "\"unk_token\": %s, \"fuse_unk\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, "
              "\"</s>\": 2",
              p.added_tokens ? p.added_tokens : "", p.normalizer ? p.normalizer : LLAMA2,
              p.pre ? p.pre : "null", p.decoder ? p.decoder : DECODER,
              p.model ? p.model : "\"byte_fallback\": true, ",
              p.has_no_unknown ? "null" : "\"<unk>\"");
    for (int i = 0; i < 256 - p.bytes; i++) text_addf(&file, ", \"<0x%02X>\": %d", i, 3 + i);
    text_addf(&file,
              ", \"a\": 259, \"b\": 260, \"" SPACE "\": 261, \"" SPACE "a\": 262, \"ab\": 263, "
              "\"" SPACE "ab\": 264%s}, \"merges\": [\"" SPACE " a\", [\"a\", \"b\"], \"" SPACE
              "a b\"%s]}}",
              p.vocab ? p.vocab : "", p.merges ? p.merges : "");
    enum status st = open_bytes(t, "tokenizer.json", &file);
    text_release(&file);
    return st;
}

static struct tokenizer *open_with(struct parts p)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, open_parts(&t, p));
    return t;
}

static bool decodes(const struct tokenizer *t, const int32_t *ids, size_t count, const char *want)
{
    struct text got = {0};
    text_adds(&got, "");
    CHECK_STATUS(OK, tokenizer_decode(t, ids, count, &got));
    bool same = !strcmp(got.data, want);
    text_release(&got);
    return same;
}
#define CHECK_TEXT(t, want, ...)                                                                   \
    CHECK(decodes(t, (const int32_t[]){__VA_ARGS__},                                               \
                  sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t), want))

TEST(llama2_prepends_a_space_and_falls_back_to_bytes)
{
    struct tokenizer *t = open_with((struct parts){0});
    CHECK(!strcmp(tokenizer_kind(t), "BPE with byte_fallback") && tokenizer_vocab_size(t) == 265);
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2);
    CHECK_IDS(t, "ab a", 264, 262);
    CHECK_IDS(t, " b", 261, 261, 260);
    CHECK_IDS(t,
              "\xC3\xA4"
              "a",
              261, 3 + 0xC3, 3 + 0xA4, 259);
    CHECK_IDS(t, "\xFF", 261, 3 + 0xFF);
    CHECK_IDS(t, "<s>", 261, 3 + '<', 3 + 's', 3 + '>');
    CHECK_TEXT(t, "ab a", 264, 262);
    CHECK_TEXT(t, "<s> a\xC3\xA4", 1, 262, 3 + 0xC3, 3 + 0xA4);
    CHECK_TEXT(t,
               "\xEF\xBF\xBD\xEF\xBF\xBD"
               "a",
               3 + 'x', 3 + 0xA4, 259);
    tokenizer_close(t);
}

TEST(metaspace_follows_its_prepend_scheme)
{
    struct parts p = {.normalizer = "null", .pre = METASPACE("always", "false")};
    struct tokenizer *t = open_with(p);
    CHECK_IDS(t, "a", 262);
    CHECK_IDS(t, " a", 262);
    tokenizer_close(t);
    p.pre = METASPACE("never", "false");
    t = open_with(p);
    CHECK_IDS(t, "a a", 259, 262);
    tokenizer_close(t);
    p.pre = METASPACE("first", "false");
    p.added_tokens = ", {\"id\": 300, \"content\": \"<m>\", \"special\": false, \"rstrip\": true}";
    t = open_with(p);
    CHECK_IDS(t, "a<m>  a<m> a", 262, 300, 259, 300, 259);
    CHECK(tokenizer_special(t, "<m>") == 300 && tokenizer_vocab_size(t) == 301);
    tokenizer_close(t);
}

TEST(metaspace_split_keeps_merges_from_crossing_spaces)
{
    struct parts p = {.normalizer = "null",
                      .pre = METASPACE("never", "true"),
                      .vocab = ", \"b" SPACE "\": 265",
                      .merges = ", \"b " SPACE "\""};
    struct tokenizer *t = open_with(p);
    CHECK_IDS(t, "b b", 260, 261, 260);
    tokenizer_close(t);
    p.pre = METASPACE("never", "false");
    t = open_with(p);
    CHECK_IDS(t, "b b", 265, 260);
    tokenizer_close(t);
}

TEST(an_unknown_id_is_reported_with_the_size_of_the_vocabulary)
{
    struct tokenizer *t = open_with((struct parts){0});
    struct text out = {0};
    CHECK(tokenizer_vocab_size(t) == 265);
    CHECK_STATUS(DATA, tokenizer_decode(t, (const int32_t[]){265}, 1, &out));
    CHECK_MESSAGE("unknown token ID 265; the vocabulary has 265 tokens");
    text_release(&out);
    tokenizer_close(t);
}

TEST(metaspace_strips_leading_spaces_of_the_first_token)
{
    struct tokenizer *t = open_with((struct parts){.normalizer = "null",
                                                   .pre = METASPACE("always", "true"),
                                                   .decoder = METASPACE("always", "true")});
    CHECK_TEXT(t, "a a", 262, 262);
    CHECK_TEXT(t, " a<0x41>", 261, 262, 3 + 'A');
    tokenizer_close(t);
}

TEST(without_byte_fallback_unknown_characters_fuse_into_one_token)
{
    struct tokenizer *t = open_with((struct parts){.normalizer = "null",
                                                   .pre = METASPACE("never", "false"),
                                                   .model = "\"byte_fallback\": false, "});
    CHECK_IDS(t, "axyb", 259, 0, 260);
    tokenizer_close(t);
}

TEST(merges_cross_unknown_characters_that_are_dropped)
{
    struct tokenizer *t = open_with((struct parts){.normalizer = "null",
                                                   .pre = METASPACE("never", "false"),
                                                   .model = "\"byte_fallback\": false, ",
                                                   .has_no_unknown = true});
    CHECK_IDS(t, "axyb", 263);
    tokenizer_close(t);
}

TEST(ignore_merges_looks_up_whole_words)
{
    struct parts p = {.normalizer = "null",
                      .pre = METASPACE("never", "true"),
                      .vocab = ", \"bab\": 265",
                      .model = "\"byte_fallback\": true, \"ignore_merges\": true, "};
    struct tokenizer *t = open_with(p);
    CHECK_IDS(t, "bab", 265);
    tokenizer_close(t);
    p.model = NULL;
    t = open_with(p);
    CHECK_IDS(t, "bab", 260, 263);
    tokenizer_close(t);
}

TEST(hf_char_bpe_matches_added_tokens_in_normalized_text)
{
    /* the normalizer prepends U+2581 to the token, too */
    struct tokenizer *t = open_with((struct parts){
        .added_tokens =
            ", {\"id\": 300, \"content\": \"x\", \"special\": false, \"normalized\": true}"});
    CHECK_IDS(t, "x a x", 300, 262, 300);
    CHECK_IDS(t, "ax", 262, 123);
    CHECK_TEXT(t, "x a", 300, 262);
    tokenizer_close(t);
}

TEST(hf_char_bpe_accepts_added_tokens_with_one_text)
{
    struct tokenizer *t = open_with((struct parts){
        .added_tokens = ", {\"id\": 300, \"content\": \"</s>\", \"special\": true}"});
    CHECK(tokenizer_vocab_size(t) == 301);
    CHECK_TEXT(t, "</s></s>", 2, 300);
    tokenizer_close(t);
    t = open_with(/* other texts */
                  (struct parts){.added_tokens = ", {\"id\": 300, \"content\": \"a b\"}",
                                 .vocab = ", \"a" SPACE "b\": 265"});
    CHECK(tokenizer_vocab_size(t) == 301);
    tokenizer_close(t);
}

TEST(hf_char_bpe_normalizes_to_nfc)
{
    struct tokenizer *t = open_with((struct parts){.normalizer = "{\"type\": \"NFC\"}",
                                                   .pre = METASPACE("never", "false"),
                                                   .vocab = ", \"\xC3\xA9\": 265"});
    CHECK_IDS(t,
              "e\xCC\x81"
              "a ab",
              265, 259, 264);
    CHECK_IDS(t, "\xC3\xA9", 265);
    tokenizer_close(t);
}

TEST(hf_char_bpe_rejects_unsupported_components_by_name)
{
    static const struct {
        struct parts parts;
        const char *why;
        enum status status;
    } rows[] = {
        {{.normalizer = "{\"type\": \"BertNormalizer\"}"}, "BertNormalizer", STATUS_UNSUPPORTED},
        {{.normalizer = "{\"type\": \"Prepend\", \"prepend\": 1}"}, "Prepend", STATUS_DATA},
        {{.pre = METASPACE("last", "false")}, "prepend_scheme", STATUS_UNSUPPORTED},
        {{.pre = "{\"type\": \"ByteLevel\"}"}, "ByteLevel", STATUS_UNSUPPORTED},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [" METASPACE(
              "never", "true") ", "
                               "{\"type\": \"Digits\"}]}"},
         "Digits after Metaspace",
         STATUS_UNSUPPORTED},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                 "\"Punctuation\"}, " METASPACE("first", "true") "]}"},
         "prepend_scheme \"first\"",
         STATUS_UNSUPPORTED},
        {{.decoder = "null"}, "no decoder", STATUS_UNSUPPORTED},
        {{.decoder = "{\"type\": \"WordPiece\"}"}, "WordPiece", STATUS_UNSUPPORTED},
        {{.decoder = STRIP}, "Strip", STATUS_UNSUPPORTED},
        {{.bytes = 1}, "<0xFF>", STATUS_UNSUPPORTED},
        {{.added_tokens = ", {\"id\": 300, \"content\": \"ab\"}"},
         "ID 263 in the vocabulary",
         STATUS_DATA},
        {{.added_tokens = ", {\"id\": 300, \"content\": \"a b\"}", .vocab = ", \"a b\": 265"},
         "ID 300, but ID 265 in the vocabulary",
         STATUS_DATA},
        {{.added_tokens = ", {\"id\": 300, \"content\": \"</s>\"}, "
                          "{\"id\": 299, \"content\": \"b\"}"},
         "\"b\" has ID 299, but ID 260 in the vocabulary",
         STATUS_DATA},
        {{.added_tokens = ", {\"id\": 263, \"content\": \"x\"}"}, "the same ID", STATUS_DATA},
        {{.vocab = ", \"x\": -1"}, "\"x\"", STATUS_DATA},
        {{.merges = ", \"b b\""}, "merge 3", STATUS_DATA},
        {{.model = "\"byte_fallback\": true, \"dropout\": 0.5, "}, "dropout", STATUS_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        enum status st = open_parts(&t, rows[i].parts);
        if (st != rows[i].status || !strstr(status_message(), rows[i].why))
            fail_msg("row %zu: %s: %s", i, status_name(st), st ? status_message() : "");
        CHECK_MESSAGE("tokenizer.json: ");
    }
}
