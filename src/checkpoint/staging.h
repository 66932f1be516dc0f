/* staging.h -- the copy of a rank's state that an asynchronous save is written from.
 *
 * Form     Each buffer keeps the form that it has in memory (tensor/store.h), so that training
 *          waits for a copy only; the save thread converts what it reads.
 * Memory   staging_bytes of the caller's, pinned if the state is in a GPU's memory.
 * Order    Of a GPU's memory 16 MiB are copied while the checksum of those before is computed; on a
 *          CPU the threads compute that of each 256 KiB right after copying them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "model/value_check.h"

struct staged_buffer {
    struct store store;        /* .x NULL: the state has no such buffer */
    uint32_t crc[STORE_PARTS]; /* taken when it was copied */
};

struct staging {
    void *memory;                            /* borrowed */
    struct staged_buffer of[VALUE_GRADIENT]; /* weights, both moments, moving average */
    struct store_blocks blocks[2];           /* of moments in INT8 */
};

/* Bytes for a shard whose moments have this dtype, with or without a moving average.
 * `exp_avg_sq`: the shard of that moment.  `blocks`: the two of INT8; ignored otherwise. */
size_t staging_bytes(const struct shard *p, const struct shard *exp_avg_sq, enum dtype moments,
                     const struct store_blocks *blocks, bool has_ema);
/* Copies the buffers of `from`; *to becomes the same state with the copies as its buffers, in host
 * memory.  Everything else stays borrowed.  DEVICE: a copy failed. */
enum status staging_fill(struct staging *s, const struct checkpoint_state *from,
                         struct checkpoint_state *to);
/* DEVICE: the copies have changed since they were made; `rank` is for the message. */
enum status staging_check(const struct staging *s, const struct checkpoint_state *state, int rank);
