/* generation.h -- autoregressive decoding with a KV cache, for each kind of prompt that `generate`
 * accepts.
 *
 * Ranks    All ranks call; rank 0 samples and broadcasts its choice. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded_model.h"
#include "model/decode.h"
#include "model/sampling.h"

/* The caller sets loaded, ids (the prompt), max_tokens, max_prompt, num_rows and sampling. */
struct generation {
    struct loaded_model loaded;
    struct token_list ids; /* the prompt, then the generated tokens */
    size_t num_prompt;     /* set by generation_open and generation_restart */
    size_t max_prompt;     /* tokens of the longest prompt; 0: of the first */
    int64_t max_tokens;
    int num_rows; /* texts that are decoded together (text_batch.h), each with this room; 0: 1 */
    struct sampling sampling;
    struct arena run; /* holds the KV cache */
    struct kv_cache cache;
    float *logits_V;           /* of the next token; owned */
    float *penalized_V;        /* scratch of the sampler; owned */
    double *log_probabilities; /* of the generated tokens, on rank 0; owned */
    double repeat_penalty;     /* see sampling_penalize; 0 or 1: none */
    struct candidate *order_V; /* scratch of the sampler; owned */
};

/* Allocates the KV cache.  CONFIG: the model is a masked language model. */
enum status generation_open(struct generation *g);
/* `how` the command ended: see machine_close_ranks. */
void generation_release(struct generation *g, enum status how);
/* Whether this is rank 0, which samples and prints. */
bool generation_is_root(const struct generation *g);

/* Gives rank 0's text to all ranks. */
enum status generation_share_text(const struct generation *g, struct text *text);

/* Runs the part of the prompt that the KV cache does not have through the model, and leaves the
 * logits of the next token. */
enum status generation_prefill(struct generation *g);
/* Forgets the generated tokens, for another text from the same prompt. */
void generation_rewind(struct generation *g);
/* Begins another text, after the prompt that g->ids is now.  USAGE: longer than max_prompt. */
enum status generation_restart(struct generation *g);
/* The same where g->ids only grew since: the KV cache keeps its tokens. */
enum status generation_continue(struct generation *g);
/* Runs the prompts of some rows through the model together, in place of what the rows held, for
 * text_batch.h. */
enum status generation_prefill_rows(struct generation *g, const struct decode_io *io);

/* A token after some others, by their logits. */
struct generation_choice {
    float *logits_V;              /* IDs that the tokenizer does not have become -inf */
    const struct token_list *ids; /* the ones before it */
    uint64_t seed;
};
/* Samples a token as below; *log_probability, on rank 0, is its own under the model. */
enum status generation_choose(struct generation *g, const struct generation_choice *c, int32_t *id,
                              double *log_probability);
/* Samples a token from the logits, which the caller may modify first.  IDs that the tokenizer does
 * not have are left out: the model's vocabulary may be padded. */
enum status generation_sample(struct generation *g, int32_t *id);
/* Appends a token; with `more`, also computes the logits of the token after it. */
enum status generation_append(struct generation *g, int32_t id, bool more);
