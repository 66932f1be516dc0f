/* store.h -- storage of parameters or moments as f32, bf16, split bf16 and low bits, or quantized
 * by blocks (blockwise.h), which the host reads and writes as f32.
 *
 * Memory   A device's f32 is copied from or to the caller's memory.  Its other forms, and INT8 in
 *          host memory too, pass in chunks through `scratch`, or without it through memory that
 *          each call allocates.  A GPU's link has its full bandwidth only if both are pinned host
 *          memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"
#include "tensor/queue.h"

#include <stdbool.h>

/* Elements [at, at + count) of a flat buffer. */
struct store_range {
    size_t at, count;
    size_t full; /* index of the first in `full` of struct store_blocks */
};
/* Where a store in INT8 has its scales, and the elements of some ranges, which stay f32. */
struct store_blocks {
    float *scales; /* of elements [i BLOCKWISE_BLOCK, (i + 1) BLOCKWISE_BLOCK) */
    float *full;
    const struct store_range *ranges; /* ascending; borrowed */
    size_t num_ranges;
    bool is_signed;
};

struct store {
    void *x;
    uint16_t *low; /* NULL, or the low bits of split storage (split_half); x is then BF16 */
    enum dtype dtype;
    struct queue *queue;               /* borrowed; owner of the device memory; NULL: host memory */
    const struct store_blocks *blocks; /* borrowed; INT8 only */
    /* STORE_SCRATCH_BYTES for store_read and store_write, one call at a time; borrowed; pinned if
     * the queue is a GPU's.  NULL: each call allocates its own. */
    void *scratch;
};
enum { STORE_SCRATCH_BYTES = 4 << 20 };

struct store store_f32(float *x, struct queue *queue);

/* What holds the first n elements of a store: x, its low bits, or its scales and what stays f32. */
enum { STORE_PARTS = 3 };
struct store_parts {
    void *x[STORE_PARTS]; /* NULL: no such part */
    size_t bytes[STORE_PARTS];
};
struct store_parts store_find_parts(const struct store *s, size_t n);
/* Host memory for a copy of the parts, n the whole store's size; each starts at a multiple of a
 * cache line. */
size_t store_bytes(const struct store *s, size_t n);
/* A store of the same form in `memory`, of store_bytes, to copy the parts to.  `blocks` becomes
 * those of INT8, with the ranges of `s`. */
struct store store_place(const struct store *s, size_t n, void *memory,
                         struct store_blocks *blocks);

/* The buffer itself if it is plain f32 in host memory, else NULL. */
float *store_host_f32(const struct store *s);

/* Elements [at, at + n).  Writing to BF16 rounds to nearest even.  Writing to INT8 replaces whole
 * blocks: what is not in a range begins at a multiple of BLOCKWISE_BLOCK, and padding may follow.
 */
enum status store_read(const struct store *s, size_t at, size_t n, float *to);
enum status store_write(const struct store *s, size_t at, size_t n, const float *from);
/* Zeroes the first n elements; not of INT8. */
enum status store_zero(const struct store *s, size_t n);
/* Copies elements [at, at + period) again and again, up to at + n, without passing the host. */
enum status store_repeat(const struct store *s, size_t at, size_t period, size_t n);
