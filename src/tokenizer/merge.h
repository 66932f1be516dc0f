/* merge.h -- the BPE merge loop on one piece of text.
 *
 * Starts from single bytes, or from given IDs, and repeatedly merges the adjacent pair with the
 * lowest rank, the leftmost of equals, until no pair has a merge.  Short pieces are scanned; long
 * ones use a heap, which is O(n log n) on any input.
 * Memory   A merger keeps its buffers between pieces. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/token_list.h"
#include "tokenizer/vocabulary.h"

struct merger {
    struct symbol *symbols;
    uint64_t *heap;
    int32_t *ids;
    size_t symbols_capacity, heap_capacity, ids_capacity;
};

void merger_release(struct merger *m);
/* Starts from the single bytes of the piece; appends the resulting IDs. */
void merger_encode(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                   size_t len, struct token_list *out);
/* Starts from `ids`, which it overwrites.  IDs that are not in the vocabulary never merge.
 * merger_reserve returns a buffer for `count` IDs, valid until its next call. */
int32_t *merger_reserve(struct merger *m, size_t count);
void merger_merge(struct merger *m, const struct vocabulary *v, int32_t *ids, size_t count,
                  struct token_list *out);
