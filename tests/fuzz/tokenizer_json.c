/* tokenizer_json.c -- any bytes as a tokenizer's file: a tokenizer or a clear refusal; and what a
 * tokenizer encodes it decodes, one of bytes to the same ones, by ids below its size.
 *
 * Up to the first NUL the input is the file, after it comes the text.  The vocabulary needs all 256
 * bytes, which no fuzzer finds: where the file says "@" they are filled in. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

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

/* Others may lose what is unknown, spaces, or what they normalize. */
static bool is_exact(const struct tokenizer *t)
{
    bool exact = !t->sentence && !t->added.finds && !t->form;
    for (size_t i = 0; i < t->steps.count; i++)
        exact &= t->steps.all[i].behavior != STEP_REMOVED && !t->steps.all[i].adds_space;
    return exact;
}

static void check_text(const struct tokenizer *t, const char *bytes, size_t len)
{
    struct encoder *e;
    struct token_list ids = {0};
    struct text back = {0};
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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const uint8_t *end = memchr(bytes, 0, len);
    size_t file_len = end ? (size_t)(end - bytes) : len;
    struct text file = {0};
    bool filled = false;
    text_adds(&file, "");
    for (size_t i = 0; i < file_len; i++)
        if (bytes[i] == '@' && !filled)
            add_bytes(&file), filled = true;
        else
            text_add(&file, &bytes[i], 1);
    struct tokenizer *t = heap(sizeof *t);
    *t = (struct tokenizer){.bos = -1, .eos = -1, .meta_cuts = len & 1};
    t->path = heap_string("input", 5);
    enum status st = file.data[0] == '{' ? hf_json_read(t, file.data, file.len)
                                         : tiktoken_read(t, file.data, file.len);
    if (!st) {
        BUG_IF(t->bos >= tokenizer_vocab_size(t) || t->eos >= tokenizer_vocab_size(t));
        if (end) check_text(t, (const char *)end + 1, len - file_len - 1);
        check_text(t, (const char *)bytes, len);
    }
    tokenizer_close(t);
    text_release(&file);
    return 0;
}
