/* merge.h -- byte-pair encoding of one piece.
 *
 * Starts from bytes; merges the adjacent pair of lowest rank, the leftmost of equals, until none is
 * in the vocabulary.  Short pieces by scanning, long ones by a heap: n log n on any input.
 * Memory   A merger keeps its working memory between pieces. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

struct merger {
    struct symbol *symbols;
    struct candidate_pair *heap;
    size_t num_symbols, num_heap; /* room */
};

void merger_release(struct merger *m);
void merger_encode(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                   size_t len, struct token_list *out);
