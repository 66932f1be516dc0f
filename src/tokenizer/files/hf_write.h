/* hf_write.h -- writes tokenizer.json of Hugging Face's tokenizers library. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct special_tokens;
struct token_table;
struct vocabulary;

struct hf_merge {
    int32_t left, right;
};

/* A byte-level BPE; or, with `pieces`, a SentencePiece model: BPE, like Llama 2's, or Unigram. */
struct hf_write {
    const struct vocabulary *vocabulary; /* byte-level: its tokens */
    const char *pattern;                 /* byte-level: by which it splits text */
    bool nfc;                            /* byte-level: normalizes text */
    const struct token_table *pieces;    /* tokens as written in the file; or NULL */
    const struct hf_merge *merges;       /* in order of rank */
    size_t num_merges;
    const struct special_tokens *specials; /* of those that share an ID, the first */
    int32_t bos;                           /* prepended to each text; -1: none */
    bool ignore_merges;
};
/* Appends the file. */
void hf_write_json(const struct hf_write *m, struct text *json);
