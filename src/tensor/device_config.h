/* device_config.h -- the options of [device]. */
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

/* The row that device.hardware names, with the other keys of [device] applied. */
struct hardware device_config_hardware(const struct device_config *c);
