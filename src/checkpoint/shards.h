/* shards.h -- tensors of a flat buffer into safetensors files, and their index. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/manifest.h"
#include "formats/safetensors.h"
#include "model/params.h"

/* Where the numbers of a tensor are: f32, in the model's layout; called once a tensor, in order of
 * names within a file.  *values stays valid until the next call. */
struct tensor_source {
    enum status (*read)(void *context, const struct tensor_place *t, const float **values);
    void *context;
};

/* <stem>.safetensors.index.json beside the files; a single file without one is called
 * <stem>.safetensors only if the index is left out for being the only one. */
enum shards_index { SHARDS_INDEX, SHARDS_INDEX_IF_MANY, SHARDS_NO_INDEX };

struct shards {
    const char *stem;         /* "model": model-00001-of-00002.safetensors */
    const char *const *parts; /* suffixes of the names, one a source: {""} or {".exp_avg", ...} */
    const struct tensor_source *sources;
    size_t num_parts;
    enum safetensors_dtype dtype;
    uint64_t most_bytes; /* of a file */
    enum shards_index index;
};

enum status shards_write(const struct shards *s, const struct layout *l, struct manifest *m);

/* A source over a flat buffer. */
struct tensor_source tensor_source_flat(const float *flat);
