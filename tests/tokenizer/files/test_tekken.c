// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

/* Parts of a tekken.json; NULL: the default. */
struct tekken_parts {
    const char *config;   /* more keys of "config", each preceded by a comma */
    const char *pattern;  /* escaped for JSON */
    const char *vocab;    /* more tokens after the 256 bytes, each preceded by a comma */
    const char *specials; /* the array; default: none in the file */
    int vocab_size;       /* default: 263 */
};

static const char abc[] = ",{\"rank\":256,\"token_bytes\":\"YmM=\",\"token_str\":\"bc\"},"
                          "{\"rank\":257,\"token_bytes\":\"YWJj\",\"token_str\":\"abc\"}";

static void write_tekken(struct text *file, const struct tekken_parts *p)
{
    text_addf(file,
              "{\"config\": {\"pattern\": \"%s\", \"default_vocab_size\": %d%s},\n\"vocab\": [",
              p->pattern ? p->pattern : "a|[^a]+", p->vocab_size ? p->vocab_size : 263,
              p->config ? p->config : ", \"default_num_special_tokens\": 5");
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        text_addf(file, "%s{\"rank\":%d,\"token_bytes\":\"", i ? "," : "", i);
        append_base64(file, &byte, 1);
        text_adds(file, "\",\"token_str\":null}");
    }
    text_addf(file, "%s]", p->vocab ? p->vocab : abc);
    if (p->specials) text_addf(file, ", \"special_tokens\": %s", p->specials);
    text_adds(file, "}");
}

static enum status open_tekken(struct tokenizer **t, const struct tekken_parts *p)
{
    struct text file = {0};
    write_tekken(&file, p);
    enum status st = open_bytes(t, "tekken.json", &file);
    text_release(&file);
    return st;
}

TEST(tekken_special_tokens_come_first)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, open_tekken(&t, &(struct tekken_parts){0}));
    CHECK(!strcmp(tokenizer_kind(t), "Tekken") && tokenizer_vocab_size(t) == 263);
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_adds_bos(t));
    CHECK(tokenizer_special(t, "[INST]") == 3 && tokenizer_special(t, "[/INST]") == 4);
    CHECK_IDS(t, "abcbc", 'a' + 5, 256 + 5, 256 + 5);
    tokenizer_close(t);
    CHECK_STATUS(OK, open_tekken(&t, &(struct tekken_parts){.pattern = ".+"}));
    CHECK_IDS(t, "abc", 257 + 5);
    tokenizer_close(t);
}

TEST(tekken_uses_as_many_tokens_as_the_vocabulary_has)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, open_tekken(&t, &(struct tekken_parts){.pattern = ".+", .vocab_size = 262}));
    CHECK_IDS(t, "abc", 'a' + 5, 256 + 5); /* the token abc is one too many */
    tokenizer_close(t);
    CHECK_STATUS(DATA, open_tekken(&t, &(struct tekken_parts){.vocab_size = 264}));
    CHECK_MESSAGE("258 tokens; config.default_vocab_size requires 259");
}

TEST(tekken_names_its_special_tokens_or_numbers_them)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, open_tekken(&t, &(struct tekken_parts){
                                         .specials = "[{\"rank\":0,\"token_str\":\"</s>\"},"
                                                     "{\"rank\":1,\"token_str\":\"<s>\"}]"}));
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 0);
    CHECK(tokenizer_special(t, "<SPECIAL_4>") == 4 && tokenizer_special(t, "[INST]") == -1);
    tokenizer_close(t);
    CHECK_STATUS(DATA, open_tekken(&t, &(struct tekken_parts){
                                           .specials = "[{\"rank\":1,\"token_str\":\"<s>\"}]"}));
    CHECK_MESSAGE("\"<s>\" has rank 1 at position 0");
}

TEST(tekken_errors_name_the_key)
{
    static const struct {
        struct tekken_parts parts;
        enum status status;
        const char *message;
    } rows[] = {
        {{.config = ""}, STATUS_DATA, "config: "},
        {{.config = ", \"default_num_special_tokens\": 263"}, STATUS_DATA, "config: "},
        {{.pattern = "(?<name>x)"}, STATUS_UNSUPPORTED, "an unsupported kind of group"},
        {{.vocab = ",{\"rank\":300,\"token_bytes\":\"YmM=\"}"},
         STATUS_DATA,
         "token 256 has rank 300"},
        {{.vocab = ",{\"rank\":256,\"token_bytes\":\"*\"}"},
         STATUS_DATA,
         "token 256 are not valid"},
        {{.vocab = ",{\"rank\":256}"}, STATUS_DATA, "vocab: "},
        {{.vocab = ",{\"rank\":256,\"token_bytes\":\"YQ==\"}"}, STATUS_DATA, "vocab: "},
        {{.specials = "[{\"rank\":0}]"}, STATUS_DATA, "special_tokens: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        enum status st = open_tekken(&t, &rows[i].parts);
        if (st != rows[i].status) fail_msg("row %zu: %s", i, st ? status_message() : "accepted");
        CHECK_MESSAGE("tekken.json: ");
        CHECK_MESSAGE(rows[i].message);
    }
}
