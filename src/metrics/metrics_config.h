/* metrics_config.h -- the options in [metrics]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "metrics/metrics.opts"
#undef OPT

struct metrics_config {
#define OPT OPT_FIELD
#include "metrics/metrics.opts"
#undef OPT
};
