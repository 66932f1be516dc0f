/* hf_normalizer.h -- reads the normalizer of a tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "tokenizer/normalizer.h"

/* Appends the steps of a component, or of a Sequence.  `path` is for messages.
 * UNSUPPORTED: names the component.  DATA: a malformed charsmap. */
enum status hf_normalizer_read(struct normalizer *n, const struct json *v, const char *path);
