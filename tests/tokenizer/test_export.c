// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "tokenizer/export.h"
#include "tokenizer/rig.h"

#include <string.h>

static struct tokenizer *opened(const char *path)
{
    struct tokenizer *t = NULL;
    CHECK_STATUS(OK, tokenizer_open(&t, path, &(struct tokenizer_config){0}));
    return t;
}

static bool text_is(const struct token_export *e, struct exported_text x, const char *want)
{
    return x.len == strlen(want) && !memcmp(e->texts.data + x.at, want, x.len);
}

TEST(byte_level_tokens_are_in_gpt2s_alphabet_and_merges_in_their_order)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small.json");
    struct token_export e;
    CHECK_STATUS(OK, tokenizer_export(t, &e));
    CHECK(e.has_merges && !strcmp(e.splitter, "llama3") && !e.whole_pieces && e.unknown == -1);
    CHECK(e.num_tokens == tokenizer_vocab_size(t) && e.num_merges > 100);
    CHECK(e.tokens[997].kind == TOKEN_CONTROL && e.tokens[0].kind == TOKEN_NORMAL);
    CHECK(text_is(&e, e.tokens[997].text, "<|begin_of_text|>"));
    int spaces = 0, quotes = 0;
    for (int i = 0; i < e.num_tokens; i++) {
        spaces += text_is(&e, e.tokens[i].text, "\xC4\xA0"); /* U+0120 */
        quotes += text_is(&e, e.tokens[i].text, "\"");
    }
    CHECK(spaces == 1 && quotes == 1);
    /* the file's text has the first merge in front of the second */
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
    token_export_release(&e);
    tokenizer_close(t);
}

TEST(tiktokens_merges_are_all_cuts_of_its_tokens)
{
    struct tokenizer *t = opened("tests/tokenizer/data/small.model");
    struct token_export e;
    CHECK_STATUS(OK, tokenizer_export(t, &e));
    CHECK(e.has_merges && e.whole_pieces && !strcmp(e.splitter, "llama3"));
    CHECK(e.num_tokens == 1253 && e.num_merges >= 997 - 256);
    CHECK(text_is(&e, e.tokens[1006].text, "<|eot_id|>") && e.tokens[1006].kind == TOKEN_CONTROL);
    token_export_release(&e);
    tokenizer_close(t);
}

TEST(sentencepieces_tokens_have_scores_and_kinds)
{
    struct tokenizer *t = opened("tests/tokenizer/data/sentence_bytes.model");
    struct token_export e;
    CHECK_STATUS(OK, tokenizer_export(t, &e));
    CHECK(!e.has_merges && !e.num_merges && e.unknown == 0 && e.num_tokens == 420);
    CHECK(e.tokens[0].kind == TOKEN_UNKNOWN && e.tokens[1].kind == TOKEN_CONTROL);
    int bytes = 0, scored = 0;
    for (int i = 0; i < e.num_tokens; i++) {
        bytes += e.tokens[i].kind == TOKEN_BYTE;
        scored += e.tokens[i].score < 0;
    }
    CHECK(bytes == 256 && scored > 100);
    token_export_release(&e);
    tokenizer_close(t);
}

TEST(bytes_have_no_merges_and_split_as_any)
{
    struct tokenizer *t = opened("bytes");
    struct token_export e;
    CHECK_STATUS(OK, tokenizer_export(t, &e));
    CHECK(e.has_merges && !e.num_merges && e.num_tokens == 259);
    CHECK(text_is(&e, e.tokens['A'].text, "A") && text_is(&e, e.tokens[0].text, "\xC4\x80"));
    token_export_release(&e);
    tokenizer_close(t);
}
