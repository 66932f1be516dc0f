/* device_config.h -- what [device] says. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/hardware.h"

#define OPT OPT_ENUM
#include "tensor/device.opts"
#undef OPT

struct device_config {
#define OPT OPT_FIELD
#include "tensor/device.opts"
#undef OPT
};
