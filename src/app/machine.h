/* machine.h (app) -- opens the backend that [device] asks for: the one place that names them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/device_config.h"
#include "tensor/dtype.h"
#include "train/machine.h"

/* UNSUPPORTED: this build has no such device. */
enum status machine_open(struct machine *m, const struct device_config *c);
/* The mesh and groups of one rank, for a machine in the making. */
enum status machine_alone(struct machine *m);
void machine_close(struct machine *m);
/* Measures what the device can do in a burst of about 50 ms, for MFU. */
void machine_measure_peak(struct machine *m, enum dtype dtype);
