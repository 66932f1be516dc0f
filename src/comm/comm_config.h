/* comm_config.h -- the options of [comm]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

#define OPT OPT_ENUM
#include "comm/comm.opts"
#undef OPT

struct comm_config {
#define OPT OPT_FIELD
#include "comm/comm.opts"
#undef OPT
};
