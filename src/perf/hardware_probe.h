/* hardware_probe.h -- a quick benchmark of this machine for `plan`: in less than a second, what a
 * step of the model depends on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "tensor/hardware.h"
#include "train/machine.h"

/* Measures the fields of `h` that are zero: peak FLOP/s (metrics.peak_flops if set), the fraction
 * of it that a GEMM as wide as the model's feed-forward layer reaches, copy bandwidth, of a GPU
 * also from the host, and memory size.  Of a GPU, also sets name and vendor, and unless the
 * configuration does, the speed of FP8 and, if hardware.h knows the GPU, the ranks of a node,
 * bandwidths and latency.  MEMORY: for the operands. */
enum status hardware_probe_fill(struct hardware *h, const struct config *c,
                                const struct model_shape *shape, struct machine *m);

/* The maker of the machine's GPU, also of one that hardware.h lacks. */
enum hardware_vendor hardware_probe_vendor(const struct machine *m);

/* The peak FLOP/s that MFU refers to: metrics.peak_flops if set, else that of the dtype of matrix
 * multiplications. */
double hardware_probe_mfu_peak(const struct hardware *h, const struct config *c);
