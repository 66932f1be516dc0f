/* added_tokens.h -- tokenizer.json's added_tokens, matched in the text before pre-tokenization.
 *
 * Special tokens never match: text that looks like one is encoded as plain text.  Other added
 * tokens match their exact text, with adjacent white space if they strip it (lstrip, rstrip), and
 * only between word boundaries if they are single words (single_word). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/matcher.h"

struct added_token {
    int32_t id;
    bool special, lstrip, rstrip, single_word;
};

/* Stage 0 matches the raw text; stage 1 matches the normalized text between those matches. */
enum { ADDED_TOKENS_STAGES = 2 };

struct added_tokens {
    struct matcher stages[ADDED_TOKENS_STAGES];
    struct added_token *tokens;
    int32_t count;
    bool matches_text; /* at least one is not special */
};

void added_tokens_release(struct added_tokens *a);
/* Of tokens with the same text in a stage, the first special one matches, otherwise the first.
 * UNSUPPORTED, DATA: as matcher_add. */
enum status added_tokens_add(struct added_tokens *a, int stage, const char *text,
                             struct added_token token);

struct added_match {
    int32_t id;
    size_t begin, end;
};
/* A search for successive matches in a text; the caller sets the first four fields. */
struct added_scan {
    const struct added_tokens *tokens;
    int stage;
    const unsigned char *text;
    size_t len;
    size_t at;   /* where the search continues */
    size_t done; /* end of the previous match: stripping stops there */
};
/* Finds the next match.  Returns false if none is left. */
bool added_tokens_next(struct added_scan *s, struct added_match *out);
