/* gpt_index.h -- Megatron's GPTDataset: which tokens of a set of sequences sample k holds.
 *
 * The sequences, as often as there are epochs, are shuffled and laid end to end; sample i begins
 * L tokens behind sample i - 1 and has L + 1 of them; then the samples are shuffled.  The last
 * epoch stays apart in both shuffles where less than 80 % of it is wanted. Memory   4 bytes for
 * each sequence of each epoch, 12 for each sample. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gpt_place {
    uint32_t document, offset; /* entry of documents, token in it */
};

struct gpt_index {
    uint64_t num_samples, num_documents, epochs;
    bool apart;                /* the last epoch is */
    uint32_t *documents;       /* numbers of sequences */
    struct gpt_place *samples; /* num_samples + 1 */
    uint32_t *shuffle;
};

/* Of the sequences first, first + 1, ..., whose lengths these are; `wanted` samples at least, 0:
 * one epoch.  DATA: there is not one sample in them.  UNSUPPORTED: an index beyond 32 bits. MEMORY.
 */
enum status gpt_index_build(struct gpt_index *x, const int32_t *lengths, uint64_t count,
                            uint64_t first, uint64_t wanted, uint64_t seq_len, uint32_t seed);
void gpt_index_release(struct gpt_index *x);
uint64_t gpt_index_bytes(const struct gpt_index *x);

/* Where sample k begins. */
static inline struct gpt_place gpt_index_at(const struct gpt_index *x, uint64_t k)
{
    return x->samples[x->shuffle[k]];
}
