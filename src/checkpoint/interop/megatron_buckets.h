/* megatron_buckets.h -- what Megatron-LM's distributed optimizer saves as dp_reshardable: the
 * buckets of its buffers, in pieces.
 *
 * optimizer.distributed.dp_group_idx_G.gbuf_idx_B.dtype_(...).bucket_idx_K.exp_avg is a vector: the
 * parameters of model chunk B of the model-parallel rank G = tp + TP pp, from the last to the
 * first, each flattened and at a multiple of 64.  A piece is what a data-parallel rank has of a
 * parameter or of the padding before the next: so both ends of a parameter are ends of pieces.
 * Source   megatron-core's param_and_grad_buffer.py and distrib_optimizer.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_shard.h"

struct bucket_piece {
    int group, buffer, bucket;
    int64_t offset, total;      /* of its first element; elements of the bucket */
    struct torch_tensor tensor; /* of one dimension; its name is owned */
    const struct file_map *map;
};

struct megatron_buckets {
    struct bucket_piece *all; /* owned */
    size_t count, capacity;
};

/* Parses the name of a bucket's float32 copies or moments. */
bool megatron_buckets_parse(const char *name, struct bucket_piece *p, enum megatron_source *source);
/* Adds a piece, whose name it then owns. */
void megatron_buckets_add(struct megatron_buckets *b, const struct bucket_piece *p);
void megatron_buckets_release(struct megatron_buckets *b);

/* Adds the pieces, which are those of `source`, to the model's tensors.  UNSUPPORTED: their ends
 * are not those of the model's parameters in Megatron-LM's order.  DATA: they do not cover a
 * bucket. */
enum status megatron_buckets_place(struct megatron_buckets *b, enum megatron_source source,
                                   const struct megatron_state *m, const struct megatron_sizes *z,
                                   struct tensor_slices *slices);
