/* hf_json.h -- reads tokenizer.json of Hugging Face's tokenizers library. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

struct tokenizer;

/* DATA: malformed.  UNSUPPORTED: a model, normalizer, pre_tokenizer or decoder that is not
 * implemented. */
enum status hf_json_read(struct tokenizer *t, const char *bytes, size_t len);
