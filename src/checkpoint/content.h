/* content.h -- what a folder of a model holds, and writing it: a checkpoint's, or a plain Hugging
 * Face folder's.
 *
 * Ranks    The tensors' files are written by all ranks at once, the others by rank 0; the bytes do
 *          not depend on how many there are, or who holds what.
 * Memory   Blocks of a few megabytes (shards.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/safetensors_shards.h"
#include "model/shard.h"
#include "tokenizer/tokenizer.h"

struct content {
    const struct model_shape *shape;
    const struct layout *layout;
    const struct shard *shard; /* that this rank has */
    const struct comm *ranks;
    struct tensor_source weights, exp_avg, exp_avg_sq; /* .read NULL: none */
    enum safetensors_dtype dtype;                      /* of the weights: F32, BF16 or F16 */
    uint64_t shard_bytes;                              /* of a file, at most; 0: 5 GB */
    bool plain; /* a Hugging Face folder: no state, and no index for a single file */
    int64_t step;
    const char *train;                 /* JSON of the trainer; or NULL */
    int bos, eos;                      /* ids for config.json; below 0: none */
    const struct tokenizer *tokenizer; /* its file is written too; or NULL */
    const struct text *config_toml;    /* or NULL */
};

/* Into the manifest's folder, which exists and is empty.  The manifest is not finished, and whole
 * on rank 0 only.  Collective; a failure of one rank is all ranks'. */
enum status content_write(const struct content *c, struct manifest *m);
/* config.json alone, and what else is text.  Of one rank. */
enum status content_write_texts(const struct content *c, struct manifest *m);
