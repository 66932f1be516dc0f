/* shards.h -- tensors into safetensors files, and their index.
 *
 * Ranks    A file is cut into blocks of whole chunks of the manifest; block b is put together,
 *          summed and written by rank b mod size, a round of `size` blocks at a time, so the bytes
 *          do not depend on who holds what.
 * Memory   A block on every rank, and what an exchange needs (exchange.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/block_exchange.h"
#include "checkpoint/manifest.h"
#include "formats/safetensors.h"
#include "model/params.h"

/* <stem>.safetensors.index.json beside the files; a single file without one is called
 * <stem>.safetensors only if the index is left out for being the only one. */
enum shards_index_mode { INDEX_ALWAYS, INDEX_IF_MANY, INDEX_NEVER };

struct safetensors_shards {
    const char *stem;         /* "model": model-00001-of-00002.safetensors */
    const char *const *parts; /* suffixes of the names, one a source: {""} or {".exp_avg", ...} */
    const struct tensor_source *sources;
    size_t num_parts;
    enum safetensors_dtype dtype;
    uint64_t max_bytes; /* of a file */
    enum shards_index_mode index;
    struct block_exchange *exchange; /* of the ranks that write */
};

/* Collective over the exchange's ranks.  The manifest gets the files' entries on all of them; the
 * index is written by rank 0.  A failure of one rank is all ranks'. */
enum status safetensors_shards_write(const struct safetensors_shards *s, struct manifest *m);
