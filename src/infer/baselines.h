/* baselines.h -- what eval holds a model's loss against: constant rates of spikes, n-grams. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "data/ngram.h"
#include "data/spikes.h"
#include "train/evaluator.h"

struct baselines {
    /* asked for by the caller */
    const struct source_config *source; /* what is evaluated */
    const struct config *config;        /* of the run: what its n-grams are counted in */
    const struct tokenizer *tokenizer;
    int64_t vocab_size;
    int64_t n;                /* 0: no n-grams */
    const char *ngram_data;   /* "": what the run trained on */
    const char *ngram_column; /* of ngram_data */
    int64_t ngram_tokens;     /* at most so many of them are counted; 0: all */
    /* found */
    bool has_spikes; /* baselines_look */
    struct spikes spikes;
    struct ngram_score ngram;
    int64_t learnt; /* tokens that n-grams were counted in */
};

/* Whether the source holds spike counts. */
enum status baselines_look(struct baselines *b);
/* Of the ids that the labels of `v` are, in a single pass over the source whose rows overlap. */
enum status baselines_measure(struct baselines *b, const struct evaluation *v);

/* Lines for a reader, or members of a JSON object. */
void baselines_print(const struct baselines *b, const struct evaluation *v);
void baselines_json(const struct baselines *b, const struct evaluation *v, struct text *json);
