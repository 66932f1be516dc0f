/* normalizer.h -- tokenizer.json's normalizers: steps that rewrite a text before pre-tokenization.
 *
 * Bytes that are not valid UTF-8 are copied; Hugging Face's library never sees them.
 * Threads  A normalizer is immutable once read; each thread has its own scratch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/text/unicode_normalize.h"

#include <stdbool.h>
#include <stddef.h>

struct regex;
struct regex_match;

enum { NORMALIZER_MAX_STEPS = 16 };

enum normalizer_kind {
    NORMALIZE_FORM,
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP_ACCENTS, /* removes combining marks */
    NORMALIZE_STRIP,         /* removes white space at the ends */
    NORMALIZE_REPLACE,       /* each match of a regular expression, or of a string */
    NORMALIZE_PREPEND,       /* to a text that is not empty */
    NORMALIZE_CHARSMAP,      /* SentencePiece's table, by grapheme clusters: see normalizer.c */
    NORMALIZE_NMT,           /* removes control characters, maps some characters to spaces */
};

struct normalizer_step {
    enum normalizer_kind kind;
    enum unicode_form form;
    bool left, right;         /* of NORMALIZE_STRIP */
    struct regex *regex;      /* owned */
    char *string;             /* what to replace without a regex; owned */
    char *content;            /* the replacement, or what to prepend; owned */
    struct charsmap charsmap; /* owned */
};

struct normalizer {
    struct normalizer_step steps[NORMALIZER_MAX_STEPS];
    size_t count;
};
void normalizer_release(struct normalizer *n);

struct normalizer_scratch {
    const struct normalizer *normalizer; /* borrowed */
    struct regex_match *matches[NORMALIZER_MAX_STEPS];
    struct text texts[2];
    size_t max_len;   /* of the normalized text */
    bool drops_start; /* the last run removed what the text starts with */
};
void normalizer_scratch_init(struct normalizer_scratch *s, const struct normalizer *n);
void normalizer_scratch_release(struct normalizer_scratch *s);

/* Runs all steps.  *out is the text itself, or in the scratch, valid until the next call.
 * RECORD: a pattern exceeds PCRE2's match limit, or the text becomes far longer. */
enum status normalizer_run(struct normalizer_scratch *s, const unsigned char *text, size_t len,
                           const unsigned char **out, size_t *out_len);
