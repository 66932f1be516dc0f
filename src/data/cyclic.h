/* cyclic.h -- the sampler of Megatron-LM's --dataloader-type cyclic: maps rows to samples.
 *
 * Order    Each epoch permutes the samples with torch.randperm, seeded with the epoch's number.
 *          Sharded, each data-parallel rank of the original owns a range of the samples, and one
 *          permutation serves all ranges; otherwise the ranks take turns in one permutation.  The
 *          last samples that do not fill a microbatch on every rank are dropped; in NeMo, those
 *          that do not fill a step.
 * Memory   4 bytes per sample of a permutation.
 * Source   MegatronPretrainingRandomSampler of NVIDIA's Megatron-LM d98e8a64dd;
 *          MegatronPretrainingRandomBatchSampler of NeMo 2.1.0; PyTorch's randperm,
 *          aten/src/ATen/native/TensorFactories.cpp. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cyclic {
    uint64_t samples;     /* of an epoch, all of them */
    uint64_t ranks, rows; /* data-parallel ranks of the original, rows of a microbatch */
    uint64_t batch;       /* of which an epoch has whole ones, in rows; 0: ranks x rows */
    bool sharded;
    uint64_t epoch;        /* that `permutation` is for */
    uint32_t *permutation; /* owned */
    uint64_t count;        /* entries of `permutation` */
};

/* Allocates and fills epoch 0's permutation; the caller has set the fields above `epoch`.
 * CONFIG: fewer samples than ranks x rows, or than `batch`; `batch` is not a multiple of these.
 * UNSUPPORTED: too many samples. */
enum status cyclic_init(struct cyclic *c);
void cyclic_release(struct cyclic *c);
/* The sample of row `number` of the run.  Rows of an earlier or later epoch replace the
 * permutation. */
uint64_t cyclic_at(struct cyclic *c, uint64_t number);
/* Whether row `number` begins a microbatch on the first rank: the original saves nowhere else. */
bool cyclic_begins_step(const struct cyclic *c, uint64_t number);
