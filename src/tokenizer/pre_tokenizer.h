/* pre_tokenizer.h -- tokenizer.json's pre_tokenizer: rules that split text into pieces.
 *
 * Each rule splits the pieces that the previous one produced.  A rule finds matches in a piece; its
 * behavior (SplitDelimiterBehavior in the tokenizers library) decides what becomes of the matches
 * and of the text between them.
 * Memory   The rules are immutable once read; each thread has its own scratch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

struct regex;
struct regex_match;

enum { PRE_TOKENIZER_MAX_RULES = 16 };

enum split_behavior {
    SPLIT_ISOLATED, /* each match is a piece */
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS, /* adjacent matches form one piece */
};

/* At most one of the first four is set; with none, nothing matches. */
struct split_rule {
    size_t (*split)(const unsigned char *text, size_t len); /* length of the match at text[0] */
    struct regex *regex;                                    /* owned */
    char *string;                                           /* a literal; owned */
    unsigned marks; /* characters with any of these enum unicode_mark bits */
    enum split_behavior behavior;
    bool invert;            /* the text between matches is what matches */
    bool in_byte_alphabet;  /* matches the piece in GPT-2's byte-level alphabet */
    bool adds_prefix_space; /* before a piece that does not start with a space */
};

/* Matches a pattern of tokenizer.json's syntax, by a hand-written splitter if there is one for it.
 * UNSUPPORTED. */
enum status pre_tokenizer_set_pattern(struct split_rule *rule, const char *pattern);

struct pre_tokenizer {
    struct split_rule rules[PRE_TOKENIZER_MAX_RULES];
    size_t count;
};
void pre_tokenizer_release(struct pre_tokenizer *p);

struct split_rule_scratch {
    struct regex_match *match;
    struct text text; /* the piece as the rule sees it, if that differs from the input */
};
struct pre_tokenizer_scratch {
    const struct pre_tokenizer *pre_tokenizer; /* borrowed */
    struct split_rule_scratch rules[PRE_TOKENIZER_MAX_RULES];
};
void pre_tokenizer_scratch_init(struct pre_tokenizer_scratch *s, const struct pre_tokenizer *p);
void pre_tokenizer_scratch_release(struct pre_tokenizer_scratch *s);

/* Receives one piece.  len == 0: the memory of earlier pieces is about to be overwritten, so the
 * callback must finish with them. */
typedef enum status piece_callback(void *context, const unsigned char *bytes, size_t len);
/* Calls `emit` for each piece, in order.
 * RECORD: a pattern exceeds PCRE2's match limit.  Also returns any error of `emit`. */
enum status pre_tokenizer_run(struct pre_tokenizer_scratch *s, const unsigned char *text,
                              size_t len, piece_callback *emit, void *context);
