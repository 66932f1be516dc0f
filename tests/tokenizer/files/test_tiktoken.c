// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "tokenizer/kinds.h"

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

TEST(tiktoken_merges_by_rank_and_takes_whole_pieces_as_they_are)
{
    struct tokenizer *t = open_usual();
    CHECK_IDS(t, "abcd", 258, 'd');
    CHECK_IDS(t, "bcab", 257, 256);
    CHECK_IDS(t, "\u00e4", 259);
    tokenizer_close(t);
    static const char *const unreachable[] = {"xy", "zw", "xyzw"};
    struct text file = {0};
    write_tiktoken(&file, unreachable + 2, 1); /* no two tokens make it */
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &file));
    CHECK_IDS(t, "xyzw", 256);
    CHECK_IDS(t, "xyzwx", 'x', 'y', 'z', 'w', 'x');
    tokenizer_close(t);
    text_release(&file);
}

TEST(tiktoken_special_tokens_have_the_names_of_llama3)
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

TEST(tiktoken_files_may_end_lines_either_way)
{
    struct text file = {0}, other = {0};
    struct tokenizer *t = NULL;
    write_tiktoken(&file, tokens, COUNT);
    for (size_t i = 0; i + 1 < file.len; i++) /* the last line has no end, and some are empty */
        text_addf(&other, file.data[i] == '\n' ? "%s" : "%.0s%c", "\r\n\n", file.data[i]);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.model", &other));
    CHECK(tokenizer_vocab_size(t) == FIRST + 256);
    CHECK_IDS(t, "abc", 258);
    tokenizer_close(t);
    text_release(&file), text_release(&other);
}

/* The usual file with one more line: is it refused, and is the line named? */
static void check_refused(const char *line, const char *why)
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

TEST(tiktoken_names_the_line_that_is_wrong)
{
    const char *line = "tokenizer.model:263: ";
    check_refused("eHg 262", line);                /* three digits of base64 */
    check_refused("eHg*eHg= 262", line);           /* no digit */
    check_refused("e=g= 262", line);               /* padding inside */
    check_refused("==== 262", line);               /* nothing but padding */
    check_refused("e=== 262", line);               /* six bits */
    check_refused(" 262", line);                   /* no token */
    check_refused("eHg=", line);                   /* no rank */
    check_refused("eHg= ", line);                  /* no rank */
    check_refused("eHg= -1", line);                /* negative */
    check_refused("eHg= 2x", line);                /* not a number */
    check_refused("eHg= 262 ", line);              /* something follows */
    check_refused("eHg= 99999999999999999", line); /* beyond every bound */
    check_refused("eHg= 99999999", line);
    check_refused("YWI= 262", line); /* the bytes of token 256 */
    check_refused("YWI= 262", "256");
    check_refused("eHg= 256", line); /* its rank */
    check_refused("{", line);
}

TEST(a_file_that_is_no_tokenizer_is_said_to_be_none)
{
    CHECK_STATUS(DATA, opens("tokenizer.model", "<!DOCTYPE html>\n"));
    CHECK_MESSAGE("tokenizer.model: no tokenizer: ");
    CHECK_STATUS(DATA, opens("tokenizer.model", "version https://git-lfs.github.com/spec/v1\n"));
    CHECK_MESSAGE("pointer of Git LFS");
    check_refused("YWI", "cut off or damaged");
}

TEST(tiktoken_ranks_leave_no_gap)
{
    check_refused("eHg= 263", "tokenizer.model: no token has rank 262");
}

TEST(tiktoken_tokens_cover_every_single_byte)
{
    CHECK_STATUS(DATA, opens("tokenizer.model", "YWI= 0\n"));
    CHECK_MESSAGE("tokenizer.model: ");
    CHECK_MESSAGE("0x00");
}

TEST(tiktoken_tokens_are_not_endless)
{
    struct text line = {0};
    for (int i = 0; i < 4000; i++) text_adds(&line, "eHh4");
    text_adds(&line, " 262");
    check_refused(line.data, ":263: ");
    text_release(&line);
}

TEST(tiktoken_files_cut_off_at_any_byte_are_refused_or_end_in_a_rank)
{
    struct text bytes = {0}, file = {0};
    write_tiktoken(&bytes, NULL, 0);
    write_tiktoken(&file, tokens, COUNT);
    for (size_t len = 0; len < file.len; len++) {
        struct tokenizer *t = heap(sizeof *t);
        *t = (struct tokenizer){.path = heap_string("cut.model", 9)};
        enum status st = tiktoken_read(t, file.data, len);
        bool has_rank = len >= bytes.len - 1 && isdigit((unsigned char)file.data[len - 1]);
        if (len != bytes.len && !has_rank && file.data[len ? len - 1 : 0] != '\n')
            CHECK(st == STATUS_DATA);
        if (len < bytes.len - 1) CHECK(st == STATUS_DATA);
        if (st) CHECK_MESSAGE("cut.model:");
        tokenizer_close(t);
    }
    text_release(&bytes), text_release(&file);
}
