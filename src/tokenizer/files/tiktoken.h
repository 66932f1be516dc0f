/* tiktoken.h -- reads tiktoken .model files (Llama 3): a token in base64 and its rank on each
 * line. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>

struct tokenizer;

/* DATA: names the line. */
enum status tiktoken_read(struct tokenizer *t, const char *bytes, size_t len);
