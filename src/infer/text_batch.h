/* text_batch.h -- texts after many prompts, decoded together: a forward pass appends a token to
 * each of up to KV_CACHE_ROWS texts, so that it reads the weights once for all of them.  Prompts
 * that begin at the same time share forward passes, too.
 *
 * A text that ends makes room for the next one.  Each is sampled with a seed of its own, so that it
 * does not depend on the others, up to the rounding of GEMMs of different sizes.
 * Ranks    Collective. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/text_generation.h"

#include <stddef.h>
#include <stdint.h>

struct text_batch_item {
    const char *prompt; /* borrowed */
    uint64_t seed;      /* of the sampler */
    /* set by text_batch_run */
    struct token_list ids; /* the prompt, then the generated tokens; owned */
    size_t num_prompt;
    struct text_generation text;
    double *log_probabilities; /* of the generated tokens, on rank 0; owned */
    bool is_done;
};

struct text_batch {
    struct text_batch_item *items; /* borrowed */
    size_t count;
    const char *const *stops; /* borrowed; none is empty */
    int num_stops;
    /* Called on every rank for each item in order, as soon as it and all before it are done. */
    enum status (*visit)(void *context, const struct text_batch_item *item);
    void *context;
    /* set by text_batch_run, without opening: all forward passes, and those of the prompts */
    double seconds, prompt_seconds;
};

/* g->loaded is open; g->num_rows says how many texts to decode together, and g->max_tokens the most
 * tokens of each.  A signal ends all texts.  Errors of generation_open and text_generation_encode,
 * with the number of the prompt. */
enum status text_batch_run(struct text_batch *b, struct generation *g);
/* Frees what the items own. */
void text_batch_release(struct text_batch *b);
