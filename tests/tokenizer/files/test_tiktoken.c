// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "tokenizer/files/tiktoken.h"
#include "tokenizer/tokenizer_impl.h"

#include <ctype.h>

static const char *const tokens[] = {"ab", "bc", "abc", "\xC3\xA4", " a", "quite long indeed"};
enum { COUNT = sizeof tokens / sizeof *tokens, FIRST = 256 + COUNT };

static struct tokenizer *open_usual(void)
{
    struct tokenizer *t = NULL;
    struct text file = {0};
    write_tiktoken(&file, tokens, COUNT);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &file));
    text_release(&file);
    return t;
}

TEST(tiktoken_ranks_are_ids_and_special_ids_follow)
{
    struct tokenizer *t = open_usual();
    CHECK(!strcmp(tokenizer_kind(t), "tiktoken") && tokenizer_vocab_size(t) == FIRST + 256);
    CHECK(tokenizer_bos(t) == FIRST && tokenizer_eos(t) == FIRST + 1);
    CHECK_IDS(t, "ab", 256);
    CHECK_IDS(t, "xab a", 'x', 256, 260);
    CHECK_IDS(t, "quite", 'q', 'u', 'i', 't', 'e');
    tokenizer_close(t);
}

TEST(tiktoken_merges_by_rank_and_looks_up_whole_pieces)
{
    struct tokenizer *t = open_usual();
    CHECK_IDS(t, "abcd", 258, 'd');
    CHECK_IDS(t, "bcab", 257, 256);
    CHECK_IDS(t, "\u00e4", 259);
    tokenizer_close(t);
    static const char *const unreachable[] = {"xy", "zw", "xyzw"};
    struct text file = {0};
    write_tiktoken(&file, unreachable + 2, 1); /* no two tokens concatenate to it */
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &file));
    CHECK_IDS(t, "xyzw", 256);
    CHECK_IDS(t, "xyzwx", 'x', 'y', 'z', 'w', 'x');
    tokenizer_close(t);
    text_release(&file);
}

TEST(tiktoken_special_tokens_have_llama3_names)
{
    static const struct {
        const char *name;
        int place;
    } rows[] = {
        {"<|begin_of_text|>", 0},
        {"<|end_of_text|>", 1},
        {"<|reserved_special_token_0|>", 2},
        {"<|reserved_special_token_3|>", 5},
        {"<|start_header_id|>", 6},
        {"<|end_header_id|>", 7},
        {"<|eot_id|>", 9},
        {"<|reserved_special_token_5|>", 10},
        {"<|reserved_special_token_100|>", 105},
        {"<|reserved_special_token_250|>", 255},
        {"<|finetune_right_pad_id|>", 4},
        {"<|eom_id|>", 8},
        {"<|python_tag|>", 10},
        {"<|reserved_special_token_251|>", -1 - FIRST},
        {"<|", -1 - FIRST},
    };
    struct tokenizer *t = open_usual();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (tokenizer_special(t, rows[i].name) != FIRST + rows[i].place)
            fail_msg("%s: %d", rows[i].name, tokenizer_special(t, rows[i].name));
    for (int32_t id = FIRST; id < FIRST + 256; id++) {
        const char *name = tokenizer_special_name(t, id);
        CHECK(name && tokenizer_special(t, name) == id);
    }
    CHECK(!strcmp(tokenizer_special_name(t, FIRST + 8), "<|eom_id|>"));
    CHECK(!tokenizer_special_name(t, FIRST - 1) && !tokenizer_special_name(t, FIRST + 256));
    tokenizer_close(t);
}

/* Opens the usual file with a pattern, and with this tokenizer_config.json beside it. */
static enum status open_with(struct tokenizer **t, const char *pattern, const char *config)
{
    struct text file = {0};
    const char *folder = test_folder(), *path = test_path(folder, "tokenizer.model");
    write_tiktoken(&file, tokens, COUNT);
    CHECK_STATUS(OK, file_write(path, file.data, file.len));
    if (config)
        CHECK_STATUS(
            OK, file_write(test_path(folder, "tokenizer_config.json"), config, strlen(config)));
    text_release(&file);
    return tokenizer_open(t, path, &(struct tokenizer_config){.pattern = pattern});
}

TEST(tiktoken_requires_the_pattern_of_a_file_that_is_not_public)
{
    struct tokenizer *t;
    CHECK_STATUS(UNSUPPORTED, open_with(&t, "", NULL));
    CHECK_MESSAGE("set tokenizer.pattern to one of llama3, llama4, gpt2, ");
    CHECK_STATUS(UNSUPPORTED, open_with(&t, "", "{\"bos_token\": \"<s>\"}"));
    CHECK_STATUS(UNSUPPORTED, open_with(&t, "(?<name>x)", NULL));
    CHECK_MESSAGE("an unsupported kind of group");
    CHECK_STATUS(CONFIG, open_with(&t, "\\s+$|.", NULL));
    CHECK_MESSAGE("write \\z for the end of the text");
    CHECK_STATUS(CONFIG, open_with(&t, "^x|.", NULL));
    CHECK_MESSAGE("write \\A");
}

TEST(tiktoken_splits_by_the_given_pattern)
{
    static const struct {
        const char *pattern, *config;
        int32_t bc; /* of "abc": one piece, or a, bc */
    } rows[] = {
        {"gpt2", NULL, 0},
        {"", "{\"pattern\": \"o200k\"}", 0},
        {"a|[^a^$]+", NULL, 257},
        {"", "{\"pat_str\": \"a|[^a]+\"}", 257},
        {"llama3", "{\"pattern\": \"a|[^a]+\"}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        CHECK_STATUS(OK, open_with(&t, rows[i].pattern, rows[i].config));
        if (rows[i].bc)
            CHECK_IDS(t, "abc", 'a', rows[i].bc);
        else
            CHECK_IDS(t, "abc", 258);
        tokenizer_close(t);
    }
}

TEST(tiktoken_special_tokens_are_those_of_the_scheme_or_of_tokenizer_config)
{
    static const struct {
        const char *pattern, *config, *name;
        int32_t id, bos, eos, size;
    } rows[] = {
        {"gpt2", NULL, "<|endoftext|>", FIRST, -1, FIRST, FIRST + 1},
        {"cl100k", NULL, "<|endofprompt|>", FIRST + 20, -1, FIRST + 1, FIRST + 21},
        {"o200k", NULL, "<|endofprompt|>", FIRST + 20, -1, FIRST + 1, FIRST + 21},
        {"qwen", NULL, "<|extra_204|>", FIRST + 207, -1, FIRST, FIRST + 208},
        {"llama4", NULL, "<|vision_reserved_special_token_1047|>", FIRST + 1133, FIRST, FIRST + 1,
         FIRST + 2048},
        {"llama4", NULL, "<|reserved_special_token_903|>", FIRST + 2047, FIRST, FIRST + 1,
         FIRST + 2048},
        {"a|[^a]+", NULL, "<|mask|>", FIRST + 2, FIRST, FIRST + 1, FIRST + 3},
        {"gpt2",
         "{\"bos_token\": \"<b>\", \"eos_token\": {\"content\": \"<e>\"}, "
         "\"added_tokens_decoder\": "
         "{\"300\": {\"content\": \"<e>\"}, \"290\": {\"content\": \"<b>\"}}}",
         "<e>", 300, 290, 300, 301},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer *t;
        CHECK_STATUS(OK, open_with(&t, rows[i].pattern, rows[i].config));
        if (tokenizer_special(t, rows[i].name) != rows[i].id || tokenizer_bos(t) != rows[i].bos ||
            tokenizer_eos(t) != rows[i].eos || tokenizer_vocab_size(t) != rows[i].size)
            fail_msg("row %zu: %d, BOS %d, EOS %d, %d tokens", i,
                     tokenizer_special(t, rows[i].name), tokenizer_bos(t), tokenizer_eos(t),
                     tokenizer_vocab_size(t));
        tokenizer_close(t);
    }
    struct tokenizer *t;
    CHECK_STATUS(DATA, open_with(&t, "gpt2", "{\"added_tokens_decoder\": {\"x\": {}}}"));
    CHECK_MESSAGE("\"x\" is not a token ID");
    CHECK_STATUS(
        DATA, open_with(&t, "gpt2", "{\"added_tokens_decoder\": {\"97\": {\"content\": \"x\"}}}"));
    CHECK_MESSAGE("ID 97 of the special token \"x\" is a token of the file; see added_tokens_dec");
    CHECK_STATUS(DATA, open_with(&t, "p50k", NULL));
    CHECK_MESSAGE("ID 237 of the special token \"<|endoftext|>\" is a token of the file: token");
}

TEST(tiktoken_normalizes_text_for_qwen)
{
    struct tokenizer *t;
    CHECK_STATUS(OK, open_with(&t, "qwen", NULL));
    CHECK_IDS(t, "a\u0308", 259);
    tokenizer_close(t);
    CHECK_STATUS(OK, open_with(&t, "gpt2", NULL));
    CHECK_IDS(t, "a\u0308", 'a', 0xCC, 0x88);
    tokenizer_close(t);
}

/* Whisper's multilingual.tiktoken ends in one. */
TEST(tiktoken_accepts_an_empty_token_that_takes_a_rank)
{
    struct tokenizer *t;
    struct text file = {0};
    write_tiktoken(&file, tokens, COUNT);
    text_adds(&file, "= 262\n");
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &file));
    CHECK(tokenizer_bos(t) == FIRST + 1);
    tokenizer_close(t);
    text_release(&file);
}

TEST(tiktoken_accepts_either_line_ending)
{
    struct text file = {0}, other = {0};
    struct tokenizer *t = NULL;
    write_tiktoken(&file, tokens, COUNT);
    for (size_t i = 0; i + 1 < file.len; i++) /* adds empty lines, and drops the last line's end */
        text_addf(&other, file.data[i] == '\n' ? "%s" : "%.0s%c", "\r\n\n", file.data[i]);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &other));
    CHECK(tokenizer_vocab_size(t) == FIRST + 256);
    CHECK_IDS(t, "abc", 258);
    tokenizer_close(t);
    text_release(&file), text_release(&other);
}

/* Adds a line to the default file and checks that the file is rejected with this message. */
static void check_rejected(const char *line, const char *why)
{
    struct text file = {0};
    struct tokenizer *t = NULL;
    write_tiktoken(&file, tokens, COUNT);
    text_adds(&file, line);
    CHECK_STATUS(DATA, open_bytes(&t, "tokenizer.model", &file));
    CHECK_MESSAGE(why);
    CHECK(!t);
    text_release(&file);
}

TEST(tiktoken_errors_name_the_line)
{
    const char *line = "tokenizer.model:263: ";
    check_rejected("eHg 262", line);                /* three digits of base64 */
    check_rejected("eHg*eHg= 262", line);           /* not a base64 digit */
    check_rejected("e=g= 262", line);               /* padding inside */
    check_rejected("==== 262", line);               /* only padding */
    check_rejected("e=== 262", line);               /* six bits */
    check_rejected(" 262", line);                   /* no token */
    check_rejected("eHg=", line);                   /* no rank */
    check_rejected("eHg= ", line);                  /* no rank */
    check_rejected("eHg= -1", line);                /* negative */
    check_rejected("eHg= 2x", line);                /* not a number */
    check_rejected("eHg= 262 ", line);              /* trailing space */
    check_rejected("eHg= 99999999999999999", line); /* over the largest ID */
    check_rejected("eHg= 99999999", line);
    check_rejected("YWI= 262", line); /* the bytes of token 256 */
    check_rejected("YWI= 262", "256");
    check_rejected("eHg= 256", line); /* its rank */
    check_rejected("{", line);
}

TEST(files_of_no_known_format_are_reported_as_such)
{
    CHECK_STATUS(DATA, opens("tokenizer.model", "<!DOCTYPE html>\n"));
    CHECK_MESSAGE("tokenizer.model: not a tokenizer: ");
    CHECK_STATUS(DATA, opens("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n"));
    CHECK_MESSAGE("Git LFS pointer");
    check_rejected("YWI", "truncated or corrupt");
}

TEST(tiktoken_rejects_gaps_in_the_ranks)
{
    check_rejected("eHg= 263", "tokenizer.model: no token has rank 262");
}

TEST(tiktoken_requires_every_single_byte)
{
    CHECK_STATUS(DATA, opens("tokenizer.model", "YWI= 0\n"));
    CHECK_MESSAGE("tokenizer.model: ");
    CHECK_MESSAGE("0x00");
}

TEST(tiktoken_rejects_overlong_tokens)
{
    struct text line = {0};
    for (int i = 0; i < 4000; i++) text_adds(&line, "eHh4");
    text_adds(&line, " 262");
    check_rejected(line.data, ":263: ");
    text_release(&line);
}

TEST(tiktoken_rejects_truncated_files_unless_they_end_in_a_rank)
{
    struct text bytes = {0}, file = {0};
    write_tiktoken(&bytes, NULL, 0);
    write_tiktoken(&file, tokens, COUNT);
    for (size_t len = 0; len < file.len; len++) {
        struct tokenizer *t = heap(sizeof *t);
        *t = (struct tokenizer){.path = heap_string("cut.model", 9)};
        text_add(&t->file, file.data, len);
        enum status st = tiktoken_read(t, NULL, "llama3");
        bool has_rank = len >= bytes.len - 1 && isdigit((unsigned char)file.data[len - 1]);
        if (len != bytes.len && !has_rank && file.data[len ? len - 1 : 0] != '\n')
            CHECK(st == STATUS_DATA);
        if (len < bytes.len - 1) CHECK(st == STATUS_DATA);
        if (st) CHECK_MESSAGE("cut.model:");
        tokenizer_close(t);
    }
    text_release(&bytes), text_release(&file);
}
