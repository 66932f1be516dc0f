/* optim_config.h -- what [optimizer] and [lr_scheduler] say. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_FIELD
struct optimizer_config {
#include "optim/optimizer.opts"
};
struct lr_scheduler_config {
#include "optim/lr_scheduler.opts"
};
#undef OPT
