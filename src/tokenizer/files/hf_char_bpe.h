/* hf_char_bpe.h -- reads a tokenizer.json with a BPE that starts from characters, as Llama 2's, or
 * with a Unigram model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>

struct tokenizer;

/* Whether the file has such a model. */
bool hf_char_bpe_matches(const struct json *root);
/* Whether such a model needs no general normalizer (char_bpe.h normalizes); otherwise that must
 * have been read before. */
bool hf_char_bpe_is_plain(const struct json *root);
/* Reads all but the added tokens, which must have been read before.  DATA, UNSUPPORTED. */
enum status hf_char_bpe_read(struct tokenizer *t, const struct json *root);
