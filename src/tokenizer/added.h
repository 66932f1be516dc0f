/* added.h -- tokens that Hugging Face's tokenizer.json adds, found in a text before it is split.
 *
 * Special ones are passed over: what looks like one stays plain text.  Others become their token,
 * and take the white space beside them where they say so; single words only where they are. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/matcher.h"

struct added_token {
    int32_t id;
    bool special, lstrip, rstrip, single_word;
};

/* Those that are looked for in the text as it is, first; then in what is between them. */
enum { ADDED_STAGES = 2 };

struct added {
    struct matcher stages[ADDED_STAGES];
    struct added_token *tokens;
    int32_t count;
    bool finds; /* one is not special */
};

void added_release(struct added *a);
enum status added_put(struct added *a, int stage, const char *text, struct added_token token);

struct added_match {
    int32_t id;
    size_t begin, end;
};
/* The first that is found from *at on; what lies before `done` is taken.  Moves *at behind it. */
bool added_next(const struct added *a, int stage, const unsigned char *text, size_t len, size_t *at,
                size_t done, struct added_match *out);
