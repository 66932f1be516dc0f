/* export.h -- a tokenizer as lists, which another format can hold: tokens with their kinds, and
 * merges or scores. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.h"

#include <stdbool.h>

/* SentencePiece's numbers. */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_FOUND, /* in texts, before they are split */
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

struct exported_text {
    size_t at; /* in `texts` */
    uint32_t len;
};
struct exported_token {
    struct exported_text text; /* byte-level BPE: in GPT-2's alphabet */
    enum token_kind kind;
    float score;
};

struct token_export {
    bool has_merges;               /* byte-level BPE; else scores */
    const char *splitter;          /* "llama3", "qwen2" or "gpt2": see split.h; "digits gpt2": each
                                      digit alone, then that; NULL: with scores */
    bool normalizes;               /* to a form of Unicode, first */
    bool whole_pieces;             /* a piece that is a token is that token, whatever merges give */
    bool adds_space;               /* in front of a text; with scores */
    int32_t unknown;               /* -1: none */
    struct exported_token *tokens; /* every id below the tokenizer's size; owned */
    int32_t num_tokens;
    struct exported_text *merges; /* "left right", in their order; owned */
    size_t num_merges;
    struct text texts;
};

/* Of a BPE with byte_fallback scores are made that give its merges; where two cuts of one token lie
 * on each other the first of them goes, not that of the lower rank.
 * UNSUPPORTED: another splitter; merges that no scores give. */
enum status tokenizer_export(const struct tokenizer *t, struct token_export *e);
void token_export_release(struct token_export *e);
