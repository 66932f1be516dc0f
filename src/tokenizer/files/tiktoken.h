/* tiktoken.h -- reads tiktoken .model files: a token in base64 and its rank on each line. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

struct json;
struct tokenizer;

/* Reads `t->file`.  The pre-tokenizer pattern of a file that is not a public one is `pattern`, or
 * if that is "" the one that tokenizer_config.json (`config`, NULL without one) gives as "pattern"
 * or "pat_str".
 * DATA: names the line.  UNSUPPORTED: no pattern, or one that is not supported. */
enum status tiktoken_read(struct tokenizer *t, const struct json *config, const char *pattern);
/* Makes the tokenizer split by `t->pattern`. */
enum status tiktoken_set_pattern(struct tokenizer *t);
