/* token_table.h -- the tokens of a tokenizer as flat lists for other formats (GGUF): tokens with
 * their types, and merges or scores. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SentencePiece's numbering, which GGUF shares. */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED, /* matched in the text before pre-tokenization */
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

struct exported_text {
    size_t at; /* offset into `texts` */
    uint32_t len;
};
struct exported_token {
    struct exported_text text; /* byte-level BPE: in GPT-2's byte-level alphabet */
    enum token_kind kind;
    float score;
};

struct token_table {
    bool has_merges;           /* byte-level BPE; otherwise the tokens have scores */
    const char *splitter;      /* a name of export.c's table; NULL: with scores */
    bool normalizes;           /* to a Unicode normalization form, first */
    bool ignore_merges;        /* a piece that is a token is that token, without merging */
    bool adds_space;           /* prepends a space to a text; with scores */
    bool removes_extra_spaces; /* collapses runs of spaces, strips them at both ends */
    bool is_unigram;           /* the scores are those of a Unigram model */
    bool byte_fallback;
    const unsigned char *charsmap; /* SentencePiece's precompiled_charsmap, or NULL; borrowed */
    size_t charsmap_bytes;
    int32_t unknown;               /* -1: none */
    struct exported_token *tokens; /* one for each ID below the vocabulary size; owned */
    int32_t num_tokens;
    struct exported_text *merges; /* "left right", in order of rank; owned */
    size_t num_merges;
    struct text texts;
};
void token_table_release(struct token_table *e);
