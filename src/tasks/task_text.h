/* task_text.h -- operations on UTF-8 text as Python's str has them, which lm-evaluation-harness
 * builds its prompts with.  White space is what str.isspace accepts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdint.h>

/* Bytes of white space at the begin and at the end of the text. */
size_t task_text_leading_space(const char *bytes, size_t len);
size_t task_text_trailing_space(const char *bytes, size_t len);
/* Appends the text without white space around it (str.strip). */
void task_text_add_stripped(struct text *out, const char *string);
/* Characters (code points). */
int64_t task_text_length(const char *string);
/* Replaces every `from` by the shorter or equally long `to`, from left to right (str.replace). */
void task_text_replace(struct text *t, const char *from, const char *to);
/* Removes every [...] on one line, as short as possible: re.sub("\\[.*?\\]", "", t). */
void task_text_remove_brackets(struct text *t);
