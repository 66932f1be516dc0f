/* pattern.h -- a splitting pattern of tokenizer.json, which is one of Oniguruma's, for PCRE2.
 *
 * What the two read alike is copied; the classes of characters are spelt out, as PCRE2's are of an
 * older Unicode; what they read differently is refused. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* UNSUPPORTED: where, and what. */
enum status pattern_translate(const char *pattern, struct text *out);
