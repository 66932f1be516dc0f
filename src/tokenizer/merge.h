/* merge.h -- byte-pair encoding of one piece.
 *
 * Starts from bytes, or from symbols given; merges the adjacent pair of lowest rank, the leftmost
 * of equals, until none is in the vocabulary.  Short pieces by scanning, long ones by a heap: n log
 * n on any input.
 * Memory   A merger keeps its working memory between pieces. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

struct merger {
    struct symbol *symbols;
    uint64_t *heap;
    int32_t *ids;
    size_t num_symbols, num_heap, num_ids; /* room */
};

void merger_release(struct merger *m);
/* From the single bytes of a piece on. */
void merger_encode(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                   size_t len, struct token_list *out);
/* From these symbols on, which are ids of the vocabulary or others that no pair has; they are
 * overwritten.  merger_symbols gives room for as many, until the next call. */
int32_t *merger_symbols(struct merger *m, size_t count);
void merger_join(struct merger *m, const struct vocabulary *v, int32_t *ids, size_t count,
                 struct token_list *out);
