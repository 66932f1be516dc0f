/* gpt_index.h -- the indices of Megatron-LM's GPTDataset: which tokens of which sequences sample k
 * consists of.
 *
 * Order    The document index repeats the sequences once per epoch and shuffles them.  The sample
 *          index packs them end to end: sample i begins L tokens after sample i - 1 and has L + 1
 *          tokens.  The shuffle index permutes the samples.  Both shuffles keep the last epoch
 *          separate if less than 80 % of it is used (separate_final_epoch).
 * Memory   4 bytes per sequence and epoch, 12 per sample. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Where a sample begins. */
struct gpt_sample {
    uint32_t document, offset; /* entry of the document index, token within that sequence */
};

struct gpt_index {
    uint64_t num_samples, num_documents, epochs;
    uint64_t tokens, seq_len; /* of an epoch; of a sample, without the last label */
    bool separate_final_epoch;
    uint32_t *document_index;        /* sequence numbers */
    struct gpt_sample *sample_index; /* num_samples + 1 */
    uint32_t *shuffle_index;
};

/* The sequences first, first + 1, ..., first + count - 1, in samples of seq_len + 1 tokens. */
struct gpt_index_spec {
    const int32_t *lengths; /* [count] */
    uint64_t count, first;
    uint64_t min_samples; /* 0: one epoch */
    uint64_t seq_len;
    uint32_t seed;
};
/* DATA: fewer tokens than one sample.  UNSUPPORTED: the index exceeds 32 bits.  MEMORY. */
enum status gpt_index_build(struct gpt_index *x, const struct gpt_index_spec *spec);
/* Whether an index of at least `min_samples` would be this one. */
bool gpt_index_serves(const struct gpt_index *x, uint64_t min_samples);
void gpt_index_release(struct gpt_index *x);
uint64_t gpt_index_bytes(const struct gpt_index *x);

/* Where sample k begins. */
static inline struct gpt_sample gpt_index_at(const struct gpt_index *x, uint64_t k)
{
    return x->sample_index[x->shuffle_index[k]];
}
