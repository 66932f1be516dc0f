/* gpu.h -- the GPU backend: our own kernels, and the vendor's libraries where they are faster.
 *
 * Each runtime has its own build of the backend: gpu_open etc. for CUDA or HIP, gpu_emu32_open and
 * gpu_emu64_open for the tests' emulator with warps of 32 and 64 lanes.
 * Order    Calls are asynchronous; queue_wait (tensor/device.h) synchronizes.
 * Memory   Kernels access the queue's device memory and its shared (pinned) memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "ops/ops.h"
#include "tensor/queue.h"

struct tuning_files;

struct gpu_description {
    char name[256];
    size_t bytes, free_bytes; /* of device memory */
};

enum { GPU_BUS_ID_BYTES = 32 };

/* Opened when they are first needed. */
enum gpu_library { GPU_LIBRARY_GEMM, GPU_LIBRARY_ATTENTION, GPU_LIBRARY_COUNT };

/* count    the number of devices.  DEVICE: no driver.
 * describe the name and memory of a device.
 * bus_id   the PCI address of a device, "0000:3B:00.0"; "" if it has none.  DEVICE: no such device.
 * open     a queue with its own stream, one host thread and no scratch; the device becomes the
 *          calling thread's current device.  DEVICE: the device cannot be used.  UNSUPPORTED: its
 *          compute capability is below 8.0, or the program has no code for its architecture.
 * tune     GEMMs use the algorithms of these files from now on; with `measures`, sizing passes time
 *          those that are missing (tensor/tuning.h).
 * leave_multiprocessors     from now on GEMMs of cuBLASLt leave `count` multiprocessors to kernels
 *          of other streams.  Initially they use all.
 * allow_nondeterministic    call before the first sizing pass: whether kernels may sum in any
 *          order, which is faster but gives different bits every run.  Initially they may not.
 * limit_attention    call before the first sizing pass: the most memory that a deterministic
 *          backward of the vendor's attention may use.
 * check_attention    whether the vendor's attention matches our own kernels.  UNSUPPORTED: no.
 * library  appends name and version of a vendor's library; nothing if the backend uses none.
 *          UNSUPPORTED: it is not installed, or too old.
 * close    synchronizes and frees everything but the memory allocated through the queue.  NULL is
 *          fine.
 * ops      the table of operations. */
#define GPU_BACKEND(prefix)                                                                        \
    enum status prefix##_count(int *count);                                                        \
    enum status prefix##_describe(int device, struct gpu_description *out);                        \
    enum status prefix##_bus_id(int device, char id[GPU_BUS_ID_BYTES]);                            \
    enum status prefix##_open(struct queue **out, int device);                                     \
    void prefix##_tune(struct queue *queue, const struct tuning_files *files);                     \
    void prefix##_leave_multiprocessors(struct queue *queue, int count);                           \
    void prefix##_allow_nondeterministic(struct queue *queue, bool allowed);                       \
    void prefix##_limit_attention(struct queue *queue, size_t bytes);                              \
    enum status prefix##_check_attention(struct queue *queue);                                     \
    enum status prefix##_library(enum gpu_library which, struct text *out);                        \
    void prefix##_close(struct queue *queue);                                                      \
    extern const struct ops prefix##_ops;
GPU_BACKEND(gpu)
GPU_BACKEND(gpu_emu32)
GPU_BACKEND(gpu_emu64)
#undef GPU_BACKEND
