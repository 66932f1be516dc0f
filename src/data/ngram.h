/* ngram.h -- the n-gram model that gpt-neuro holds its models against, for any token ids.
 *
 *     p(id | n-1 ids before) = (count of the n ids + 1) / (count of the n-1 ids + vocab_size)
 *
 * which is Laplace's rule.  Contexts stay within a document, whose first n-1 ids are not predicted.
 * Memory   About 64 bytes a different n-gram; they are told apart by 64-bit fingerprints. */
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
/* Adds what the ids of a document cost. */
void ngram_measure(const struct ngram *g, const int32_t *ids, size_t count, struct ngram_score *s);
