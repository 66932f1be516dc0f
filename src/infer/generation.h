/* generation.h -- token after token of a causal model, for the kinds of prompt that generate takes.
 *
 * Ranks    All call; rank 0 chooses. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded.h"
#include "model/decode.h"
#include "model/sampling.h"

/* loaded, ids (the prompt), max_tokens and sampling are set by the caller. */
struct generation {
    struct loaded loaded;
    struct token_list ids; /* prompt, then what was generated; generation_open: num_prompt */
    size_t num_prompt;
    int64_t max_tokens;
    struct sampling sampling;
    struct arena run; /* of the cache */
    struct kv_cache cache;
    float *logits_V;           /* of what comes next; owned */
    struct candidate *order_V; /* owned */
};

/* CONFIG: the model was trained to fill in masked tokens. */
enum status generation_open(struct generation *g);
void generation_release(struct generation *g, enum status how);
bool generation_leads(const struct generation *g);

/* The prompt through the model. */
enum status generation_prefill(struct generation *g);
/* A token by the logits, which the caller may change before. */
enum status generation_choose(struct generation *g, int32_t *id);
/* Appends it; `more`: and finds the logits behind it. */
enum status generation_append(struct generation *g, int32_t id, bool more);
