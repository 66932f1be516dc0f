/* bpe_trainer.h -- trains a byte-level BPE vocabulary (Sennrich et al. 2016, algorithm 1).
 *
 * Words are the pieces of Llama 3's splitter; words of over 4096 bytes are counted in parts.  The
 * most frequent adjacent pair merges first; ties go to the pair with the lowest IDs, so the result
 * depends on the text alone.  A pair whose joined bytes are a token already is skipped. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/vocabulary.h"

#include <stdint.h>

struct bpe_trainer;

/* Sizes of a vocabulary, special tokens included. */
enum {
    BPE_TRAINER_MIN_SIZE = 256 + SPECIAL_TOKENS_DEFAULT + 1,
    BPE_TRAINER_MAX_SIZE = VOCABULARY_MAX_ID + 1
};

void bpe_trainer_make(struct bpe_trainer **out);
void bpe_trainer_free(struct bpe_trainer *t);
/* Counts the words of a text, with the threads of OpenMP. */
void bpe_trainer_add(struct bpe_trainer *t, const char *bytes, size_t len);
/* Trains, and appends a tokenizer.json with vocab_size tokens to `json`: 256 bytes, the merges and
 * <|begin_of_text|> <|end_of_text|> <|mask|>.  *num_tokens is the number of tokens, smaller than
 * vocab_size if no pair is left that occurs twice.
 * DATA: no text was added.  CONFIG: vocab_size is below 260, or above 2^22, which no tokenizer that
 * can be opened exceeds. */
enum status bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab_size, struct text *json,
                               int32_t *num_tokens);
