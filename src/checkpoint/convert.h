/* convert.h -- converts a model: format, dtype, number of files, with or without training state.
 *
 * Memory   A few megabytes, however large the model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "checkpoint/convert_check.h"
#include "checkpoint/interop/dcp_items.h"
#include "checkpoint/interop/nxdt_write.h"
#include "data/data_config.h"
#include "formats/safetensors.h"
#include "optim/optim_config.h"

#include <stdbool.h>
#include <stdint.h>

struct conversion {
    const char *from; /* anything checkpoint_load reads */
    const char *to;   /* new or empty folder; native: a run's dump folder; gguf: a file */
    enum conversion_target target;
    const char *config;                       /* config.json of `from`; NULL: its own */
    const struct objective_config *objective; /* what `from` was trained for; NULL: unknown */
    bool keep_dtype;                          /* keep the source's; else: */
    enum safetensors_dtype dtype;
    bool quantized;       /* gguf: q8_0, whatever `dtype` */
    uint64_t shard_bytes; /* maximum per file; 0: 5 GB */
    bool sets_rope;       /* set the RoPE scaling factor, whatever `from` has: */
    double rope_factor;   /* 0: no scaling; other parameters default to Llama 3's */
    bool without_io;      /* leave out the embedding and the head; hf, meta, dcp */
    bool ema; /* the weights' moving average instead of the weights; also as model_only */
    /* Leave out optimizer, step and data position.  Otherwise native and dcp include them, if
     * `from` has them and without_io is false. */
    bool model_only;
    /* dcp: settings of the run that `from` belongs to; NULL: as model_only */
    const struct optimizer_config *optimizer;
    const struct lr_scheduler_config *lr_scheduler;
    struct dcp_target dcp;
    struct nxdt_target nxdt;
    int64_t schedule_steps, rows; /* length of the schedule; rows per step */
};

struct converted {
    int num_tensors;
    int64_t parameters;
    enum safetensors_dtype dtype;
    int64_t step; /* of the converted training state; -1: none */
};

/* Writes atomically.  CONFIG: `to` exists and is not empty.  DATA, MISSING: `from` is unusable; the
 * message says why. */
enum status convert_checkpoint(const struct conversion *c, struct converted *done);
