/* baselines.h -- what eval compares a model's loss with: an n-gram model, and for spike counts a
 * homogeneous Poisson model (a constant rate for each neuron). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "config/config.h"
#include "infer/ngram.h"
#include "infer/spikes.h"
#include "train/evaluator.h"

struct baselines {
    /* set by the caller; pointers are borrowed */
    const struct source_config *source; /* the data being evaluated */
    const struct config *config;        /* of the run, whose training data the n-grams count */
    const struct tokenizer *tokenizer;
    int64_t vocab_size;
    int64_t n;                /* order of the n-gram model; 0: none */
    const char *ngram_data;   /* "": the run's training data */
    const char *ngram_column; /* of ngram_data */
    int64_t ngram_tokens;     /* count in at most this many tokens; 0: all */
    /* results */
    bool has_spikes; /* set by baselines_find_spikes */
    struct spikes spikes;
    struct ngram_score ngram;
    int64_t tokens_counted; /* tokens that the n-grams were counted in */
};

/* Sets has_spikes: whether the source holds spike counts. */
enum status baselines_find_spikes(struct baselines *b);
/* Evaluates the baselines on the source's first `seen` IDs (0: on all), which the model has read.
 * A causal model with overlapping rows predicts all of them except the first; a masked or diffusion
 * model predicts only the masked ones.  DATA: no document has n tokens. */
enum status baselines_measure(struct baselines *b, uint64_t seen);

/* The evaluated source as a corpus. */
struct corpus baselines_corpus(const struct baselines *b);

/* Lines for people; members of a JSON object. */
void baselines_print(const struct baselines *b, const struct evaluation *v);
void baselines_write_json(const struct baselines *b, const struct evaluation *v,
                          struct json_writer *w);
