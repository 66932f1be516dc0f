/* spike_session.h -- `generate --session`: a model continues a recorded session of spike counts, or
 * with `--neurons` one bin in which random neurons spike.
 *
 * Order    As the data: 255 (the bin separator), then one count per neuron, bin after bin.  The
 *          separators are written, not sampled; elsewhere their logit is -infinity. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/generation.h"

struct spike_session {
    struct source_config source; /* path "": no recorded session */
    int64_t neurons; /* without one: of the random first bin; 0: neither was requested */
    int64_t row, prompt_bins, bins;
    const char *out;         /* the .npz file to write; borrowed */
    struct token_list whole; /* the recorded session, or the random bin; owned */
    size_t tokens_per_bin;   /* 0 before spike_session_read */
};

/* Whether the flags ask for one. */
bool spike_session_requested(const struct spike_session *s);
/* Reads the session, or draws the random bin (a tenth of the neurons spike once, as gpt-neuro's
 * unconditional generation begins), puts the first bins into g->ids and sets g->max_tokens.
 * USAGE: --out is missing; CONFIG: no such session, or it is shorter than the prompt.
 * Collective. */
enum status spike_session_read(struct spike_session *s, struct generation *g);
/* After the model is loaded.  CONFIG: its vocabulary is smaller than 256, or it is not causal. */
enum status spike_session_open(const struct spike_session *s, struct generation *g);
/* Generates, writes the .npz file and prints a summary on stdout.  Collective. */
enum status spike_session_generate(const struct spike_session *s, struct generation *g, bool json);
void spike_session_release(struct spike_session *s);
