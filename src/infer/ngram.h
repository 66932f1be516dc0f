/* ngram.h -- the n-gram baseline that gpt-neuro compares its models with, for any token IDs.
 *
 *     p(id | previous n-1 ids) = (count of the n ids + 1) / (count of the n-1 ids + vocab_size)
 *
 * with add-one (Laplace) smoothing.  Contexts stay within a document, whose first n-1 IDs are not
 * predicted.
 * Memory   About 64 bytes per distinct n-gram; n-grams are identified by 64-bit hashes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ngram;

struct ngram *ngram_make(int n, int64_t vocab_size);
void ngram_free(struct ngram *g);

/* Counts the n-grams of a document. */
void ngram_learn(struct ngram *g, const int32_t *ids, size_t count);

struct ngram_score {
    double loss_sum; /* nats */
    int64_t tokens;
};
/* Adds the negative log-likelihood of a document's IDs to *s. */
void ngram_measure(const struct ngram *g, const int32_t *ids, size_t count, struct ngram_score *s);
