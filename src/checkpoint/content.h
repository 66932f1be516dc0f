/* content.h -- writes the contents of a model folder: a checkpoint's or a plain Hugging Face
 * folder's.
 *
 * Ranks    All ranks write the tensors' files together, rank 0 writes the others.  The bytes do not
 *          depend on the number of ranks or on their shards.
 * Memory   Blocks of a few megabytes (safetensors_shards.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/safetensors_shards.h"
#include "data/data_config.h"
#include "model/shard.h"
#include "tokenizer/tokenizer.h"

struct content {
    const struct model_shape *shape;
    const struct layout *layout;
    const struct shard *shard; /* this rank's shard */
    const struct comm *ranks;
    struct tensor_source weights, exp_avg, exp_avg_sq, ema; /* .read NULL: none */
    uint32_t first_moment_only;   /* kinds of weights that exp_avg_sq lacks (a set, params.h) */
    enum safetensors_dtype dtype; /* of the weights: F32, BF16 or F16 */
    uint64_t shard_bytes;         /* maximum per safetensors file; 0: 5 GB */
    bool plain; /* plain Hugging Face folder: no state, and no index for a single file */
    int64_t step;
    const char *train;                 /* the trainer's JSON object; NULL: none */
    int bos, eos;                      /* token IDs for config.json; negative: none */
    const struct tokenizer *tokenizer; /* its files (hf_folder.h) are written too; NULL: none */
    const struct objective_config *objective; /* what the model is trained for; NULL: unknown */
    const struct text *config_toml;           /* NULL: none */
};

/* The mask token of a masked model; else NULL. */
const char *content_mask_token(const struct objective_config *objective);

/* Writes into the manifest's folder, which must exist and be empty.  Does not finish the manifest,
 * which is complete on rank 0 only.  Collective; if one rank fails, all fail. */
enum status content_write(const struct content *c, struct manifest *m);
/* Writes only config.json and the other text files.  For one rank. */
enum status content_write_texts(const struct content *c, struct manifest *m);
