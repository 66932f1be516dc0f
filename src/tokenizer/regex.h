/* regex.h -- splitting by a pattern that has no hand-written splitter; PCRE2, compiled. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

struct regex;
struct regex_match; /* one thread's working memory */

/* UNSUPPORTED: PCRE2 cannot read the pattern. */
enum status regex_compile(struct regex **out, const char *pattern);
void regex_free(struct regex *r);
struct regex_match *regex_match_make(const struct regex *r);
void regex_match_free(struct regex_match *m);

/* Bytes of the piece at text[at]: a match that begins there, else the text up to the next match.
 * A text is gone through from at = 0 to its end.  DATA: PCRE2 gives up (its limits are reached). */
enum status regex_split(const struct regex *r, struct regex_match *m, const unsigned char *text,
                        size_t len, size_t at, size_t *piece);
/* "10.42 2022-12-11": PCRE2's. */
void regex_library_version(struct text *version);
