/* model_config.h -- the options of [model], [activation_checkpoint] and [float8]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define FLOAT8_SCALING_WORDS "auto|dynamic|delayed" /* of enum float8_scaling */
#define OPT                  OPT_ENUM
#include "model/activation_checkpoint.opts"
#include "model/float8.opts"
#include "model/model.opts"
#undef OPT

struct model_config {
#define OPT OPT_FIELD
#include "model/model.opts"
#undef OPT
};

struct activation_checkpoint_config {
#define OPT OPT_FIELD
#include "model/activation_checkpoint.opts"
#undef OPT
};

struct float8_config {
#define OPT OPT_FIELD
#include "model/float8.opts"
#undef OPT
};
