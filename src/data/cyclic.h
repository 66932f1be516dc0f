/* cyclic.h -- the sampler of Megatron-LM's --dataloader-type cyclic: which sample a row is.
 *
 * Order    Each epoch permutes the samples with torch.randperm, seeded with the number of the
 * epoch. Sharded, each data-parallel rank of the original has a range of the samples, and one
 *          permutation serves all ranges; otherwise the ranks take turns in one permutation.  The
 *          last samples that do not fill a microbatch on every rank are dropped.
 * Memory   4 bytes per sample of a permutation.
 * Source   MegatronPretrainingRandomSampler of NVIDIA's Megatron-LM d98e8a64dd; randperm of
 * PyTorch, aten/src/ATen/native/TensorFactories.cpp. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct cyclic {
    uint64_t samples;     /* of an epoch, all of them */
    uint64_t ranks, rows; /* data-parallel ranks of the original, rows of a microbatch */
    bool sharded;
    uint64_t epoch;        /* of the permutation */
    uint32_t *permutation; /* owned */
    uint64_t count;        /* of it */
};

/* Allocates and fills epoch 0's permutation; the caller has set the fields above `epoch`.  CONFIG:
 * fewer samples than ranks x rows.  UNSUPPORTED: too many samples. */
enum status cyclic_init(struct cyclic *c);
void cyclic_release(struct cyclic *c);
/* The sample of row `number` of the run. */
uint64_t cyclic_at(struct cyclic *c, uint64_t number);
