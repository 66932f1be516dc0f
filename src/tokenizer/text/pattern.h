/* pattern.h -- translates a tokenizer.json pre-tokenizer pattern from Oniguruma to PCRE2 syntax.
 *
 * Syntax with the same meaning in both libraries is copied.  Character classes are expanded, since
 * PCRE2 has an older version of Unicode.  Anything else is rejected. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Appends the PCRE2 pattern.  UNSUPPORTED: names the construct and its byte offset. */
enum status pattern_translate(const char *pattern, struct text *out);
