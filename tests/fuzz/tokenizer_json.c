/* tokenizer_json.c -- fuzzes the readers of tokenizer.json, tekken.json and tiktoken files: any
 * bytes must yield a tokenizer or a clean error.  A tokenizer must encode to IDs below its
 * vocabulary size and decode them; a byte-level one must decode to the same bytes.
 *
 * The input up to the first NUL is the file; the rest is a text.  A vocabulary needs all 256 bytes,
 * which no fuzzer would guess, so "@" in the file is replaced by them. */
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "tokenizer/files/hf_json.h"
#include "tokenizer/files/tekken.h"
#include "tokenizer/files/tiktoken.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

#include "fuzz/json_arena.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { MAX_TEXT = 256 }; /* bytes of the text, and of the file as a text: longer ones cost time */

static void add_bytes(struct text *file)
{
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b > ' ' && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        int code = itself ? b : next++;
        text_adds(file, b ? ",\"" : "\"");
        if (code == '"' || code == '\\') text_adds(file, "\\");
        if (code < 0x80)
            text_addf(file, "%c", code);
        else
            text_addf(file, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 63));
        text_addf(file, "\":%d", b);
    }
}

/* Is the tokenizer lossless?  Others drop unknown characters or spaces, or normalize. */
static bool is_exact(const struct tokenizer *t)
{
    bool exact =
        !t->char_bpe && !t->added_tokens.matches_text && !t->normal_form && !t->normalizer.count;
    for (size_t i = 0; i < t->pre_tokenizer.count; i++)
        exact &= t->pre_tokenizer.rules[i].behavior != SPLIT_REMOVED &&
                 !t->pre_tokenizer.rules[i].adds_prefix_space;
    return exact;
}

static void fill_in(struct text *file, const char *bytes, size_t len)
{
    static struct text all;
    const char *mark = memchr(bytes, '@', len);
    size_t before = mark ? (size_t)(mark - bytes) : len;
    if (!all.len) add_bytes(&all);
    text_add(file, bytes, before);
    if (mark) text_add(file, all.data, all.len);
    if (mark) text_add(file, mark + 1, len - before - 1);
}

static void check_text(const struct tokenizer *t, const char *bytes, size_t len)
{
    struct encoder *e;
    struct token_list ids = {0};
    struct text back = {0};
    len = len < MAX_TEXT ? len : MAX_TEXT;
    BUG_IF(encoder_make_sized(&e, t, 4));
    if (!encoder_encode(e, bytes, len, &ids)) {
        bool exact = is_exact(t);
        BUG_IF(tokenizer_decode(t, ids.ids, ids.count, &back));
        BUG_IF(exact && (back.len != len || (len && memcmp(back.data, bytes, len))));
        for (size_t i = 0; i < ids.count; i++)
            BUG_IF(ids.ids[i] < 0 || ids.ids[i] >= tokenizer_vocab_size(t));
    }
    text_release(&back);
    token_list_release(&ids);
    encoder_free(e);
}

static enum status read_json(struct tokenizer *t)
{
    struct json *root;
    TRY(json_parse(t->file.data, t->file.len, t->path, &root));
    enum status st = tekken_matches(root) ? tekken_read(t, root) : hf_json_read(t, root, NULL);
    json_free(root);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const uint8_t *end = memchr(bytes, 0, len);
    size_t file_len = end ? (size_t)(end - bytes) : len;
    json_arena_begin();
    struct text file = {0};
    fill_in(&file, (const char *)bytes, file_len);
    struct tokenizer *t = heap(sizeof *t);
    *t = (struct tokenizer){.bos = -1, .eos = -1, .meta_cuts = len & 1};
    t->path = heap_string("input", 5);
    text_add(&t->file, file.data, file.len);
    enum status st = file.data[0] == '{' ? read_json(t) : tiktoken_read(t, NULL, "llama3");
    if (!st) {
        BUG_IF(t->bos >= tokenizer_vocab_size(t) || t->eos >= tokenizer_vocab_size(t));
        if (end) check_text(t, (const char *)end + 1, len - file_len - 1);
        check_text(t, (const char *)bytes, len);
    }
    tokenizer_close(t);
    text_release(&file);
    return 0;
}
