/* tekken.h -- reads Mistral's tekken.json: tokens in base64, a pre-tokenizer pattern and special
 * tokens, which have the lowest IDs.
 *
 * Source  mistral_common/tokens/tokenizers/tekken.py of mistral-common 1.13. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

struct json;
struct tokenizer;

/* Whether a JSON file is a tekken.json, not a tokenizer.json. */
bool tekken_matches(const struct json *root);
/* DATA, UNSUPPORTED: names the key. */
enum status tekken_read(struct tokenizer *t, const struct json *root);
