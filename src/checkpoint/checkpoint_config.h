/* checkpoint_config.h -- the options of [checkpoint]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "checkpoint/checkpoint.opts"
#undef OPT

struct checkpoint_config {
#define OPT OPT_FIELD
#include "checkpoint/checkpoint.opts"
#undef OPT
};
