/* convert_check.h -- the formats of a conversion, and whether the programs that read a format have
 * a model with these settings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/dcp_generation.h"
#include "model/model_shape.h"

enum conversion_target {
    CONVERT_HF,     /* a Hugging Face folder */
    CONVERT_META,   /* consolidated.00.pth, params.json, and config.json */
    CONVERT_DCP,    /* a torch.distributed.checkpoint directory, and config.json */
    CONVERT_GGUF,   /* one file: gguf_model.h */
    CONVERT_NXDT,   /* an NxD Training checkpoint, weights only: nxdt_write.h; and config.json */
    CONVERT_NATIVE, /* TO/checkpoint/step-N, f32, for train to resume; step-0: model only */
};

struct convert_check {
    const char *from; /* for messages */
    enum conversion_target target;
    enum dcp_generation generation; /* dcp */
};
/* UNSUPPORTED: the target has no such model: because of QK norm, biases, multipliers, blocks
 * without RoPE, a sliding window, or RoPE scaling. */
enum status convert_check_settings(const struct convert_check *c, const struct model_shape *s);
