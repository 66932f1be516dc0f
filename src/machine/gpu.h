/* gpu.h (launch) -- the GPU of a machine, in a program that was built with the backend for one.
 *
 * A program without says so: gpu_backend is NULL, and nothing else here is called. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tensor/device_config.h"
#include "train/machine.h"

extern const char *const gpu_backend; /* "cuda", "hip"; NULL: none */

/* How many there are for this process; 0 also where there is no driver. */
int gpu_machine_count(void);
/* Opens m->on and m->ops on the GPU of the `local`th rank of this host; m->peak_flops by the table
 * of hardware.h. */
enum status gpu_machine_open(struct machine *m, const struct device_config *c, int local);
/* Makes the groups of tensors carry its memory.  Collective.  CONFIG: device.comm is nccl and two
 * ranks have one GPU; UNSUPPORTED: this program has no NCCL. */
enum status gpu_machine_carry(struct machine *m, const struct device_config *c);
/* After its groups were closed. */
void gpu_machine_close(struct machine *m);
/* See machine_tune; what was found is kept at `path`. */
void gpu_machine_tune(const struct machine *m, const char *path);
/* Adds "NVIDIA H200, 139.8 GiB, 139.3 free", or why that is not known. */
void gpu_machine_describe(int index, struct text *out);
