/* sentencepiece.c -- fuzzes the SentencePiece model reader: any bytes must yield a tokenizer or a
 * clean error.  A tokenizer must encode to IDs below its vocabulary size, and decode them.
 *
 * The last 64 bytes, and the first 256, are used as texts, too. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/sentencepiece.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_text(const struct tokenizer *t, const char *bytes, size_t len)
{
    struct encoder *e;
    struct token_list ids = {0};
    struct text back = {0};
    BUG_IF(encoder_make_sized(&e, t, 4));
    BUG_IF(encoder_encode(e, bytes, len, &ids));
    for (size_t i = 0; i < ids.count; i++)
        BUG_IF(ids.ids[i] < 0 || ids.ids[i] >= tokenizer_vocab_size(t));
    BUG_IF(tokenizer_decode(t, ids.ids, ids.count, &back));
    BUG_IF(tokenizer_decode_part(t, ids.ids, ids.count, &back));
    text_release(&back);
    token_list_release(&ids);
    encoder_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    enum { MOST = 256 };
    size_t tail = len < 64 ? len : 64;
    struct tokenizer *t = heap(sizeof *t);
    *t = (struct tokenizer){.bos = -1, .eos = -1};
    t->path = heap_string("input", 5);
    if (!sentencepiece_read(t, (const char *)bytes, len)) {
        BUG_IF(t->bos >= tokenizer_vocab_size(t) || t->eos >= tokenizer_vocab_size(t));
        check_text(t, (const char *)bytes + len - tail, tail);
        check_text(t, (const char *)bytes, len < MOST ? len : MOST);
    }
    tokenizer_close(t);
    return 0;
}
