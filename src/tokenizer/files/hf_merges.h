/* hf_merges.h -- reads the "merges" of a BPE model in tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

struct tokenizer;

/* Converts one half of a merge to its bytes in the vocabulary; clears `out` first. */
typedef enum status hf_merges_decode(const struct tokenizer *t, const char *text, size_t len,
                                     struct text *out);
/* Adds merges, written as "a b" or ["a", "b"], to the vocabulary in order of rank.
 * DATA: names the merge. */
enum status hf_merges_read(struct tokenizer *t, const struct json *merges,
                           hf_merges_decode *decode);
