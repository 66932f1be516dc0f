/* sessions.h -- generating spike counts: a session's first bins, and how a model goes on.
 *
 * Order    As spike counts are read: 255, then a count of each neuron, bin after bin.  The 255 of a
 *          bin is put there, and nothing else is ever 255: its logit elsewhere is -infinity. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/generation.h"

struct session {
    struct source_config source; /* path "": none was asked for */
    int64_t row, prompt_bins, bins;
    const char *out;         /* the .npz to be written */
    struct token_list whole; /* of the session */
    size_t bin;              /* tokens of one; 0 before session_read */
};

/* The prompt into g->ids, and g->max_tokens.  USAGE: a number of bins, no --out; CONFIG: there is
 * no such session, or it is shorter than the prompt.  Collective. */
enum status session_read(struct session *s, struct generation *g);
/* The model has been loaded.  CONFIG: its vocabulary is smaller than 256, it is not causal. */
enum status session_open(const struct session *s, struct generation *g);
/* Writes the file and says so on stdout.  Collective. */
enum status session_generate(const struct session *s, struct generation *g, bool json);
void session_release(struct session *s);
