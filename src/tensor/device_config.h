/* device_config.h -- what [device] says. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/hardware.h"

struct device_config {
#define OPT OPT_FIELD
#include "tensor/device.opts"
#undef OPT
};
