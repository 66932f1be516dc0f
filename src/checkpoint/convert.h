/* convert.h -- a model into another folder: format, dtype, number of files, with or without a run.
 *
 * Memory   A few megabytes, however large the model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "checkpoint/interop/nxdt_write.h"
#include "formats/safetensors.h"
#include "optim/optim_config.h"

#include <stdbool.h>
#include <stdint.h>

enum conversion_target {
    CONVERT_HF,     /* a Hugging Face folder */
    CONVERT_NATIVE, /* to/checkpoint/step-N of a run, f32, for train to go on from; of a model
                       alone step-0, to begin from */
    CONVERT_META,   /* consolidated.00.pth, params.json, and config.json */
    CONVERT_DCP,    /* a directory of torch.distributed.checkpoint, and config.json */
    CONVERT_GGUF,   /* one file: gguf_model.h */
    CONVERT_NXDT, /* a checkpoint of NxD Training, weights alone: nxdt_writer.h; and config.json */
};

struct conversion {
    const char *from; /* a checkpoint of ours (checked against its manifest), a Hugging Face folder,
                         or torch's files (torch_files.h) */
    const char *to;   /* native: a run's dump folder; gguf: a file; else the folder itself.  New, or
                         empty */
    enum conversion_target target;
    const char *config; /* config.json of `from`; NULL: its own */
    bool keep_dtype;    /* as it is; else: */
    enum safetensors_dtype dtype;
    bool quantized;       /* gguf: q8_0, whatever `dtype` */
    uint64_t shard_bytes; /* of a file, at most; 0: 5 GB */
    bool sets_rope;       /* rotary frequencies are scaled by another factor than `from` says: */
    double rope_factor;   /* 0: they are not scaled; Llama 3's other numbers where it has none */
    bool without_io;      /* the embedding and the head are left out; hf, meta, dcp */
    bool model_only;      /* the optimizer, the step and the place in the data are left out; they
                             go to native and to dcp, if they are there and nothing else is out */
    /* dcp: settings of the run that `from` is of; NULL: as model_only */
    const struct optimizer_config *optimizer;
    const struct lr_scheduler_config *lr_scheduler;
    struct nxdt_target nxdt;
    int64_t schedule_steps, rows; /* length of the schedule, and rows of a step */
};

struct converted {
    int num_tensors;
    int64_t parameters;
    enum safetensors_dtype dtype;
    int64_t step; /* of the optimizer that went along; -1: none did */
};

/* Written at once or not at all.  CONFIG: there is something in `to` already.  DATA, MISSING: what
 * is wrong with `from`. */
enum status checkpoint_convert(const struct conversion *c, struct converted *done);
