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

/* The caller sets the first five fields; the rest is zero at first. */
struct text_generation {
    const char *const *stops; /* borrowed; none is empty */
    int num_stops;
    bool prints;                        /* write the text to stdout while it grows */
    bool (*asks_to_end)(void *context); /* NULL, or whether the user asks to end it, on rank 0 */
    void *context;
    struct text bytes;  /* of the tokens so far, without the stop text; owned */
    size_t num_printed; /* of those */
    enum text_finish finish;
    double seconds;
    double prompt_seconds; /* of those, the prompt's forward pass */
};

/* Sets *ids to the prompt's tokens, after the begin-of-text token if data.bos says so.  USAGE: no
 * token at all; CONFIG: the model has no tokenizer. */
enum status text_generation_encode(const struct loaded_model *l, const char *prompt,
                                   struct token_list *ids);
/* Generates one text after the prompt, for which generation_open was called. */
enum status text_generation_run(struct text_generation *t, struct generation *g);
void text_generation_release(struct text_generation *t);

/* Adds a token's text, and prints what is certain to belong to it; sets `finish` at a stop text or
 * at the end-of-text token, which has no text. */
enum status text_generation_add(struct text_generation *t, const struct tokenizer *tokenizer,
                                int32_t id);
/* Whether a signal, or the user, asks any of the ranks to end.  Collective. */
enum status text_generation_is_interrupted(const struct text_generation *t,
                                           const struct generation *g, bool *ends);

/* A text with its tokens. */
struct generated_text {
    const struct text_generation *text;
    const struct token_list *ids; /* the prompt, then the text */
    size_t num_prompt;
    const double *log_probabilities; /* of the text's tokens; NULL: unknown, as is how it ended */
    const char *prompt;              /* to repeat in the object, or NULL */
};
/* Prints a line: an object with prompt, text, finish_reason, ids, log_probabilities, prompt_tokens
 * and, unless they belong to a batch, seconds and prompt_seconds. */
enum status text_generation_print_json(const struct loaded_model *l,
                                       const struct generated_text *t);

const char *text_generation_finish_name(enum text_finish finish);
