/* parallel_config.h -- the options of [parallelism]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "parallel/parallelism.opts"
#undef OPT

struct parallelism_config {
#define OPT OPT_FIELD
#include "parallel/parallelism.opts"
#undef OPT
};
