/* convert.h -- a model's folder into another one: dtype, number of files, with or without a run.
 *
 * Memory   A few megabytes, however large the model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "formats/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

struct conversion {
    const char
        *from;       /* a checkpoint of ours (checked against its manifest) or a Hugging Face one */
    const char *to;  /* native: a run's dump folder; else the folder itself.  New, or empty */
    bool native;     /* to/checkpoint/step-0, f32, for train to begin from */
    bool keep_dtype; /* as it is; else: */
    enum safetensors_dtype dtype;
    uint64_t shard_bytes; /* of a file, at most; 0: 5 GB */
};

struct converted {
    int num_tensors;
    int64_t parameters;
    enum safetensors_dtype dtype;
};

/* Written at once or not at all.  CONFIG: there is something in `to` already.  DATA, MISSING: what
 * is wrong with `from`. */
enum status checkpoint_convert(const struct conversion *c, struct converted *done);
