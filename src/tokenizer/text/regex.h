/* regex.h -- splitting by a pattern that has no hand-written splitter; PCRE2, compiled. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

struct regex;
struct regex_match; /* one thread's working memory */

/* The pattern as tokenizer.json has it, see pattern.h.
 * UNSUPPORTED: it cannot be read, or may match nothing at all. */
enum status regex_compile(struct regex **out, const char *pattern);
void regex_free(struct regex *r);
struct regex_match *regex_match_make(const struct regex *r);
void regex_match_free(struct regex_match *m);

/* The next match from `at` on; both are `len` where there is none.
 * DATA: PCRE2 gives up (its limits are reached). */
enum status regex_find(const struct regex *r, struct regex_match *m, const unsigned char *text,
                       size_t len, size_t at, size_t *begin, size_t *end);
/* "10.42 2022-12-11": PCRE2's. */
void regex_library_version(struct text *version);
