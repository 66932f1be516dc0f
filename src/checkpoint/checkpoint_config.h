/* checkpoint_config.h -- the options of [checkpoint]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

struct checkpoint_config {
#define OPT OPT_FIELD
#include "checkpoint/checkpoint.opts"
#undef OPT
};
