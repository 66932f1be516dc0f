/* block_exchange.h -- assembles blocks of a file from all ranks' shards (two-phase collective I/O).
 *
 * Block    TENSOR_SOURCE_ELEMENTS elements at most.
 * Ranks    Elements that several ranks hold have the same bits on all of them.  A rank uses its own
 *          copy first; of the ranks that hold the same runs of a tensor, only the lowest sends.
 * Memory   A byte per element of a block; with several ranks also a send and a receive buffer, each
 *          of a block's elements and 8 bytes per run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/tensor_source.h"
#include "comm/comm.h"
#include "formats/safetensors.h"
#include "model/shard.h"

/* A run of a tensor's elements, and its position in the block. */
struct block_span {
    int tensor;
    size_t first, count, at;
    const struct tensor_source *source;
};
struct file_block {
    struct block_span *spans;
    size_t count;
};

struct block_exchange {
    const struct layout *layout;
    const struct comm *ranks;
    struct shard_run *runs; /* this rank's runs, sorted by tensor and first element; owned */
    size_t num_runs;
    uint64_t *fingerprints; /* [rank][tensor]: of the runs the rank holds; 0: none; owned */
    bool *sends;            /* [rank][tensor]: no lower rank holds the same runs; owned */
    uint32_t *out, *in;
    size_t out_capacity, in_capacity; /* words */
    unsigned char *filled;
};

/* Collective.  The runs of `p` must not overlap. */
enum status block_exchange_open(struct block_exchange *x, const struct layout *l,
                                const struct shard *p, const struct comm *ranks);
void block_exchange_close(struct block_exchange *x);

/* blocks[r] is the block that rank r assembles; `bytes` receives this rank's, converted to `dtype`.
 * Collective; returns this rank's first failure.  Without the elements of another rank that failed,
 * this rank succeeds, so that comm_agree, which must follow, names the rank at fault.
 * SHAPE: no rank holds an element of the block. */
enum status block_exchange_fill(struct block_exchange *x, const struct file_block *blocks,
                                enum safetensors_dtype dtype, void *bytes);
