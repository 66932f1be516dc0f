/* train.h -- learning a byte-level BPE from text (Sennrich et al. 2016, alg. 1).
 *
 * Words are the pieces of Llama 3's splitter.  The most frequent adjacent pair merges first; of
 * equally frequent ones that with the lowest ids, so the result is a function of the text alone.
 * A pair whose bytes are a token already is passed over.  A word of over 4096 bytes is counted in
 * parts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

struct bpe_trainer;

void bpe_trainer_make(struct bpe_trainer **out);
void bpe_trainer_free(struct bpe_trainer *t);
/* Counts the words of a text. */
void bpe_trainer_add(struct bpe_trainer *t, const char *bytes, size_t len);
/* Learns and writes a tokenizer.json of vocab_size tokens: 256 bytes, merges, then
 * <|begin_of_text|> <|end_of_text|> <|mask|>.  Fewer, where the text has no pair left that occurs
 * twice.  DATA: no text was added.  CONFIG: vocab_size is below 260. */
enum status bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab_size, struct text *json,
                               int32_t *made);
