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

/* A row with the keys of [device] that are set applied; the row that device.hardware names. */
struct hardware device_config_apply(const struct device_config *c, const struct hardware *row);
struct hardware device_config_hardware(const struct device_config *c);
