/* task_text.h -- operations on UTF-8 text as Python's str has them, which lm-evaluation-harness
 * builds its prompts with.  White space is what str.isspace accepts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdint.h>

/* Bytes of white space at the beginning and at the end of the text. */
size_t task_text_leading_space(const char *bytes, size_t len);
size_t task_text_trailing_space(const char *bytes, size_t len);
/* Appends the text without surrounding white space (str.strip). */
void task_text_add_stripped(struct text *out, const char *string);
/* Characters (code points). */
int64_t task_text_length(const char *string);
/* Replaces every `from` by `to`, which must not be longer, from left to right (str.replace). */
void task_text_replace(struct text *t, const char *from, const char *to);
/* Removes every shortest [...] that lies on one line: re.sub("\\[.*?\\]", "", t). */
void task_text_remove_brackets(struct text *t);
