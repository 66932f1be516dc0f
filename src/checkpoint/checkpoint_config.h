/* checkpoint_config.h -- what [checkpoint] says. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

struct checkpoint_config {
#define OPT OPT_FIELD
#include "checkpoint/checkpoint.opts"
#undef OPT
};
