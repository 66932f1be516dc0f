/* shard.h -- which elements of which tensors a process holds.
 *
 * FSDP divides every unit into equal shards; tensor parallelism additionally slices matrices along
 * the axis that llama.params names.  A shard lists both as contiguous runs of the unsharded
 * tensors, so initialization, optimizer and checkpoint need not know the mesh.  No run covers the
 * padding of units or of the vocabulary, which therefore stays zero and is never saved.
 *
 * Memory   Flat buffers hold this process's shard of each unit, unit after unit: layout elements /
 *          num_shards in all. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/layout.h"

#include <stddef.h>

/* A contiguous run of a tensor's elements. */
struct shard_run {
    int tensor;          /* index in the layout of the whole model */
    size_t first, count; /* elements of the whole tensor, row by row */
    size_t at;           /* offset of the first in this process's flat buffers */
};
struct shard {
    struct shard_run *runs; /* in buffer order; owned */
    size_t count;
    size_t elements; /* of this process's flat buffers, padding included */
};

/* Which shard of the units, and which tensor-parallel slice of the matrices. */
struct shard_position {
    int shard, num_shards;
    int slice, num_slices;
};

/* The elements of l's tensor `tensor` in shard `shard` of layout_init's `num_shards`; count 0:
 * none.  `tensor` and `first` are of l, which may be sliced. */
struct shard_run shard_find(const struct layout *l, int tensor, int shard, int num_shards);
/* Shard `shard` of layout_init's `num_shards`. */
void shard_init(struct shard *p, const struct layout *l, int shard, int num_shards);
/* `l` has some tensors of `whole`, sliced; runs refer to `whole`. */
void shard_init_sliced(struct shard *p, const struct layout *l, const struct layout *whole,
                       struct shard_position at);
/* `of` without the kinds of weights in `omitted` (params.h): what follows an omitted element moves
 * towards the start.  Padding is kept. */
void shard_init_without(struct shard *p, const struct shard *of, const struct layout *whole,
                        uint32_t omitted);
/* The run that has this element; it must exist.  A linear search, for shards without Muon's
 * matrices, which have one run per tensor. */
const struct shard_run *shard_find_run(const struct shard *p, int tensor, size_t element);
/* How many of `most` runs from p on are of equal length and at a constant stride in one tensor. */
size_t shard_equal_runs(const struct shard_run *p, size_t most);
void shard_release(struct shard *p);
