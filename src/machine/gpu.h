/* gpu.h (machine) -- opens the GPU of this rank, in a program that was built with a GPU backend.
 *
 * In a program without one gpu_backend is NULL, and of these functions only
 * gpu_machine_count may be called. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tensor/device_config.h"
#include "train/machine.h"

extern const char *const gpu_backend; /* "cuda" or "hip"; NULL: built without */

/* Number of GPUs visible to this process; 0 if the driver is missing. */
int gpu_machine_count(void);
/* Selects the GPU (cudaSetDevice) by local rank, round robin among those of device.gpus: sets
 * m->queue and m->ops, and m->hardware and m->peak_flops if hardware.h knows it.  DEVICE: no GPU,
 * or it cannot be used.  CONFIG: as gpu_list_read. */
enum status gpu_machine_open(struct machine *m, const struct device_config *c, int local);
/* Wraps the communicators that move tensors, so that they accept device memory: by NCCL, or staged
 * through host memory.  Collective.  With device.comm "nccl",
 * CONFIG: two ranks share a GPU; UNSUPPORTED: NCCL is not installed, or the program was built
 * without it. */
enum status gpu_machine_wrap_comms(struct machine *m, const struct device_config *c);
/* Call after closing the groups. */
void gpu_machine_close(struct machine *m);
/* See machine_tune; the results are saved to `path`. */
void gpu_machine_tune(const struct machine *m, const char *path);
/* Appends "NVIDIA H200, 139.8 GiB, 139.3 free", or the reason why it cannot be queried. */
void gpu_machine_describe(int index, struct text *out);
