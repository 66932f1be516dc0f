/* hf_json.h -- reads tokenizer.json of Hugging Face's tokenizers library. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

struct json;
struct tokenizer;

/* `root`: tokenizer.json.  `config`: tokenizer_config.json, which names BOS and EOS; NULL: none and
 * the names of well-known tokenizers are looked up.  As in Transformers and torchtitan, a name that
 * tokenizer.json does not have becomes a token after all others.
 * DATA: malformed.  UNSUPPORTED: a model, normalizer, pre_tokenizer or decoder that is not
 * implemented. */
enum status hf_json_read(struct tokenizer *t, const struct json *root, const struct json *config);

/* The text of a special token in tokenizer_config.json, which is a string or an object with its
 * content; NULL: neither. */
const char *hf_json_token_name(const struct json *config, const char *key);
