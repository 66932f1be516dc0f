/* steps.h -- a text into pieces by several rules, each cutting what the one before it left:
 * tokenizer.json's pre_tokenizers.
 *
 * A rule finds matches in a piece; its behavior says what becomes of them and of what lies between.
 * Memory   Steps are immutable once read; each thread has its own work. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

struct regex;
struct regex_match;

enum { STEPS_MOST = 16 };

enum step_behavior {
    STEP_ISOLATED, /* a match is a piece */
    STEP_REMOVED,
    STEP_MERGED_WITH_PREVIOUS,
    STEP_MERGED_WITH_NEXT,
    STEP_CONTIGUOUS, /* matches side by side are one piece */
};

/* What matches: one of the first four, or nothing. */
struct step {
    size_t (*split)(const unsigned char *text, size_t len); /* bytes of the match at text[0] */
    struct regex *regex;                                    /* owned */
    char *string;                                           /* this one; owned */
    unsigned marks;                                         /* a character with one of these */
    enum step_behavior behavior;
    bool inverted;   /* what lies between matches is what matches */
    bool spelt;      /* matches in GPT-2's letters for bytes */
    bool adds_space; /* in front of a piece that begins with none */
};

struct steps {
    struct step all[STEPS_MOST];
    size_t count;
};
void steps_release(struct steps *s);

struct step_work {
    struct regex_match *match;
    struct text text; /* the piece as the step sees it, where that is not as it is */
};
struct steps_work {
    const struct steps *steps; /* borrowed */
    struct step_work all[STEPS_MOST];
};
void steps_work_init(struct steps_work *w, const struct steps *s);
void steps_work_release(struct steps_work *w);

/* Takes a piece.  len == 0: what was taken so far is about to be overwritten. */
typedef enum status take_piece(void *context, const unsigned char *bytes, size_t len);
/* DATA: a pattern gives up; what `take` says. */
enum status steps_run(struct steps_work *w, const unsigned char *text, size_t len, take_piece *take,
                      void *context);
