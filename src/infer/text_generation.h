/* text_generation.h -- text that a causal model generates after a prompt, up to the end-of-text
 * token, a stop text, or a number of tokens.
 *
 * Ranks    All ranks call; rank 0 prints. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "infer/generation.h"

#include <stdbool.h>
#include <stddef.h>

/* name, why the text ended */
#define TEXT_FINISH_LIST(X)                                                                        \
    X(length, "it has max_tokens tokens")                                                          \
    X(eos, "the model ended it")                                                                   \
    X(stop, "a stop text followed")                                                                \
    X(interrupt, "a signal arrived")

enum text_finish {
#define X(name, text) TEXT_FINISH_##name,
    TEXT_FINISH_LIST(X)
#undef X
};

/* The caller sets the first three fields; the rest is zero at first. */
struct text_generation {
    const char *const *stops; /* borrowed; none is empty */
    int num_stops;
    bool prints;        /* write the text to stdout while it grows */
    struct text bytes;  /* of the tokens so far, without the stop text; owned */
    size_t num_printed; /* of those */
    enum text_finish finish;
    double seconds;
};

/* Makes the prompt's tokens g->ids, after the begin-of-text token if data.bos says so.  USAGE: no
 * token at all; CONFIG: the model has no tokenizer. */
enum status text_generation_set_prompt(struct generation *g, const char *prompt);
/* Generates one text after the prompt, for which generation_open was called. */
enum status text_generation_run(struct text_generation *t, struct generation *g);
void text_generation_release(struct text_generation *t);

const char *text_generation_finish_name(enum text_finish finish);
