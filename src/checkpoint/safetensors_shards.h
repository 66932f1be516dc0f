/* safetensors_shards.h -- writes tensors to one or several safetensors files, and their index.
 *
 * Ranks    A file is divided into blocks of whole manifest chunks.  Rank b mod size assembles,
 *          checksums and writes block b; the ranks proceed in rounds of `size` blocks.  The bytes
 *          do not depend on the ranks' shards.
 * Threads  One assembles a block while another writes the one before; in a background thread
 *          (base/thread.h) one does both.
 * Memory   Two blocks per rank, and the buffers of block_exchange.h. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/block_exchange.h"
#include "checkpoint/manifest.h"
#include "formats/safetensors.h"
#include "model/shard.h"

/* When to write <stem>.safetensors.index.json.  With INDEX_IF_MANY a single file is called
 * <stem>.safetensors and has no index. */
enum shards_index_mode { INDEX_ALWAYS, INDEX_IF_MANY, INDEX_NEVER };

struct safetensors_shards {
    const char *stem;         /* "model": model-00001-of-00002.safetensors */
    const char *const *parts; /* name suffixes, one per source: {""} or {".exp_avg", ...} */
    const struct tensor_source *sources;
    size_t num_parts;
    const uint32_t *omitted; /* per source: kinds of weights that it lacks; NULL: none */
    bool fuses;              /* stores matrices as Phi-3 does (hf_fused.h) */
    enum safetensors_dtype dtype;
    uint64_t max_bytes; /* of a file */
    enum shards_index_mode index;
    struct block_exchange *exchange; /* of the ranks that write */
};

/* Collective over the exchange's ranks.  All get the files' entries in the manifest; rank 0 writes
 * the index.  If one rank fails, all fail. */
enum status safetensors_shards_write(const struct safetensors_shards *s, struct manifest *m);
