/* moments.h -- storage of moments in 8 bits, of one shard.
 *
 * Which    Matrices are quantized if their elements are a multiple of BLOCKWISE_BLOCK and at least
 *          4096, as bitsandbytes' min_8bit_size; other tensors, among them all norms, stay f32.
 * Blocks   They divide the whole tensor, row by row, from its first element on, whatever the
 *          parallel layout, so the bits do not depend on it.  Tensor parallelism that cuts blocks
 *          is rejected; MOMENTS_ALIGN keeps FSDP from cutting any.
 * Memory   For each moment a byte per element, which the caller allocates, and 4 bytes per
 *          block. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "model/shard.h"
#include "tensor/blockwise.h"
#include "tensor/store.h"

enum { MOMENTS_ALIGN = BLOCKWISE_BLOCK }; /* for struct model_part */

bool moments_are_quantized(const struct tensor_slot *t);

struct quantized_moments {
    struct store_blocks blocks[2]; /* of exp_avg and of exp_avg_sq */
    struct store_range *ranges;    /* the elements that stay f32; owned */
};

/* `local` has some tensors of `whole`, one of `num_slices` tensor-parallel slices of each.  CONFIG:
 * a slice, of this rank or another, cuts blocks. */
enum status moments_check(const struct layout *local, const struct layout *whole, int num_slices);
/* Allocates scales, and the moments that stay f32, from `run`, for a shard that moments_check
 * accepts.  Release it in any case. */
void moments_alloc(struct quantized_moments *q, const struct layout *whole,
                   const struct shard *shard, struct arena *run);
void moments_release(struct quantized_moments *q);
