/* pace.h -- how fast this machine is at what a model asks of it, measured in less than a second. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "tensor/hardware.h"
#include "train/machine.h"

/* Fills what `h` leaves at zero: the peak (metrics.peak_flops, where that is said), the share of it
 * that a product as wide as the model's feed-forward layer reaches, the rate of memory that is
 * copied, and how much there is.  MEMORY: for a product. */
enum status pace_measure(struct hardware *h, const struct config *c,
                         const struct model_shape *shape, struct machine *m);
