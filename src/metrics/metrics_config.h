/* metrics_config.h -- what [metrics] says. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

struct metrics_config {
#define OPT OPT_FIELD
#include "metrics/metrics.opts"
#undef OPT
};
