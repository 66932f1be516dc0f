/* unigram.h -- Unigram models: the tokens whose scores, added up, are the best of all segmentations
 * of a text (Viterbi).
 *
 * A character without a token has the lowest score of all tokens minus 10.  Of segmentations of
 * equal scores the one found first wins: shorter tokens and earlier positions first.
 * SentencePiece adds scores in single precision, and subtracts the sum so far from later ones
 * whenever it exceeds 100,000; Hugging Face's library adds them in double precision.  This decides
 * between close scores, so both are repeated.
 * Memory   A unigram_path keeps its buffers between calls. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tokenizer/token_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unigram;

struct unigram_token {
    const char *text; /* borrowed until unigram_make returns */
    uint32_t len;     /* > 0 */
    int32_t id;
    double score;
};

struct unigram_model {
    struct unigram_token *tokens; /* their texts are distinct; sorted by unigram_make */
    size_t count;
    double min_score; /* the lowest score; SentencePiece's is that of normal pieces */
    bool single_precision;
};

struct unigram *unigram_make(const struct unigram_model *m);
void unigram_free(struct unigram *u);

/* A segmentation: tokens in order of the text. */
struct unigram_piece {
    uint32_t begin, len;
    int32_t id; /* -1: a character without a token */
};
struct unigram_path {
    struct unigram_piece *pieces; /* owned */
    size_t count, capacity;
    struct unigram_node *nodes; /* owned */
    size_t nodes_capacity;
};
void unigram_path_release(struct unigram_path *p);
/* Finds the best segmentation; len < 2^32. */
void unigram_encode(const struct unigram *u, struct unigram_path *p, const unsigned char *text,
                    size_t len);
