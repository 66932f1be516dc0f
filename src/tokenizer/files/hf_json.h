/* hf_json.h -- reads and writes tokenizer.json of Hugging Face's tokenizers library. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

struct special_tokens;
struct tokenizer;
struct vocabulary;

/* DATA: malformed.  UNSUPPORTED: a model, normalizer, pre_tokenizer or decoder that is not
 * implemented. */
enum status hf_json_read(struct tokenizer *t, const char *bytes, size_t len);

/* A merge found by training. */
struct hf_merge {
    int32_t left, right;
};
/* Appends a tokenizer.json: byte-level BPE with Llama 3's splitter.  The first special token is
 * BOS. */
void hf_json_write(const struct vocabulary *v, const struct hf_merge *merges, size_t num_merges,
                   const struct special_tokens *specials, struct text *json);
