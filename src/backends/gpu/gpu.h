/* gpu.h -- the GPU backend: kernels of our own, and the vendor's libraries where they are faster.
 *
 * There is one for each runtime it is compiled with: gpu_open and its like are CUDA's or HIP's,
 * gpu_emu32_open and gpu_emu64_open the tests', over the emulator.
 * Order    Calls return when their work is asked for; queue_wait (tensor/device.h) ends it.
 * Memory   What kernels read and write is the queue's memory or its shared memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/queue.h"

/* count    how many devices there are; DEVICE: no driver.
 * describe the device's name, and how many bytes it has in all and free.
 * open     a queue with a stream of its own and no scratch; the device becomes the calling
 *          thread's.  DEVICE: the device cannot be used.
 * tune     measuring passes choose each product's fastest way from here on, and keep it in the file
 *          (tensor/tuning.h).
 * any_order    before the first measuring pass: whether sums may be taken in any order, which is
 *          faster, and gives other bits every time; at first they may not.
 * close    waits, and gives back all but the memory that was taken.  NULL is fine.
 * ops      the table. */
struct gpu_description {
    char name[256];
    size_t bytes, free_bytes;
};
#define GPU_DOOR(prefix)                                                                           \
    enum status prefix##_count(int *count);                                                        \
    enum status prefix##_describe(int device, struct gpu_description *out);                        \
    enum status prefix##_open(struct queue **out, int device);                                     \
    void prefix##_tune(struct queue *on, const char *path);                                        \
    void prefix##_any_order(struct queue *on, bool allowed);                                       \
    void prefix##_close(struct queue *on);                                                         \
    extern const struct ops prefix##_ops;
GPU_DOOR(gpu)
GPU_DOOR(gpu_emu32)
GPU_DOOR(gpu_emu64)
#undef GPU_DOOR
