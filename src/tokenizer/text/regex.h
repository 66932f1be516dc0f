/* regex.h -- PCRE2 with JIT, for pre-tokenizer patterns without a hand-written splitter. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

struct regex;
struct regex_match; /* a pattern's match data: one per thread */
struct regex_span {
    size_t begin, end;
};

/* `pattern` has tokenizer.json's syntax, see pattern.h.
 * UNSUPPORTED: it does not compile, or it can match the empty string. */
enum status regex_compile(struct regex **out, const char *pattern);
void regex_free(struct regex *r);
/* The pattern as it was given to regex_compile. */
const char *regex_pattern(const struct regex *r);
/* Borrows the pattern. */
struct regex_match *regex_match_make(const struct regex *r);
void regex_match_free(struct regex_match *m);

/* Finds the next match at or after `at`; without one, both offsets are `len`.
 * RECORD: PCRE2 reaches its match limit. */
enum status regex_find(struct regex_match *m, const unsigned char *text, size_t len, size_t at,
                       struct regex_span *out);
/* The version of PCRE2, such as "10.42 2022-12-11". */
void regex_library_version(struct text *version);
