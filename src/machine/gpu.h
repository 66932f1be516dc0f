/* gpu.h (machine) -- opens the GPU of this rank, in a program that was built with a GPU backend.
 *
 * In a program without one gpu_backend is NULL, and of these functions only gpu_machine_count,
 * gpu_machine_numa_node and gpu_machine_prepare_driver may be called. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tensor/device_config.h"
#include "tensor/tuning.h"
#include "train/machine.h"

extern const char *const gpu_backend; /* "cuda" or "hip"; NULL: built without */

/* Sets the variables that make CUDA open up to 32 hardware queues, HIP 48, and HIP leave streams on
 * their queues and allocate as much memory at once as there is, unless the user has set them.  Call
 * it before MPI opens, which may start the driver. */
void gpu_machine_prepare_driver(void);
/* Number of GPUs visible to this process; 0 if the driver is missing, or too old. */
int gpu_machine_count(void);
/* The NUMA node of the host's memory that is closest to that GPU; -1: unknown. */
int gpu_machine_numa_node(int index);
/* Appends why that is 0, and which variables hide GPUs: "no GPU found, with
 * CUDA_VISIBLE_DEVICES=\"\"". */
void gpu_machine_explain_none(struct text *out);
/* Appends "; CUDA_VISIBLE_DEVICES=1,3" if variables select GPUs. */
void gpu_machine_add_visibility(struct text *out);
/* Selects the GPU (cudaSetDevice) by local rank, round robin among those of device.gpus: sets
 * m->queue and m->ops, and m->hardware and m->peak_flops if hardware.h knows it.  `cores`: the
 * queue's num_threads without device.threads.  DEVICE: no GPU, or it cannot be used.  UNSUPPORTED:
 * the program has no code for it.  CONFIG: as gpu_list_read. */
enum status gpu_machine_open(struct machine *m, const struct device_config *c, int cores,
                             int local);
/* Wraps the communicators that move tensors, so that they accept device memory: by NCCL, or staged
 * through host memory.  Collective.  With device.comm "nccl",
 * CONFIG: two ranks share a GPU; UNSUPPORTED: NCCL is not installed, or the program was built
 * without it. */
enum status gpu_machine_wrap_comms(struct machine *m, const struct device_config *c);
/* Call after closing the groups. */
void gpu_machine_close(struct machine *m);
/* See machine_share_gpu; gpu_machine_wrap_comms has done so where tensors travel by NCCL. */
void gpu_machine_share(const struct machine *m);
/* See machine_tune. */
void gpu_machine_tune(const struct machine *m, const struct tuning_files *files);
/* Appends "NVIDIA H200, 139.80 GiB, 139.30 GiB free", or the reason why it cannot be queried. */
void gpu_machine_describe(int index, struct text *out);
/* The vendor's libraries that a run opens, i from 0: sets what uses it ("GEMMs") and appends name
 * and version, or nothing if this backend uses none.  False: there are no more.  *st UNSUPPORTED:
 * it is not installed, or too old. */
bool gpu_machine_library(int i, const char **use, struct text *out, enum status *st);
/* Whether the vendor's attention gives the results of our own kernels, and NCCL sums on this GPU.
 * UNSUPPORTED: no, or the library is not installed.  COMM: NCCL failed. */
enum status gpu_machine_check_attention(const struct machine *m);
enum status gpu_machine_check_nccl(const struct machine *m);
