/* thread_block.h -- runs an emulated kernel: the thread blocks of a grid one after another, each
 * thread on a fiber of its own.
 *
 * Order    With a warp size of 64, blocks and threads run in descending order, so a kernel whose
 *          result depends on scheduling differs from its run with a warp size of 32.
 * Memory   Dynamic shared memory is filled with NaN before each block.
 * Errors   What CUDA leaves undefined aborts the program and reports where: threads of a warp or a
 *          block that wait at different barriers, a shuffle, __syncwarp or instruction of whole
 *          warps after a lane has returned, or a return before a cp.async is complete. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

struct grid_dim {
    unsigned x, y, z;
};

/* body(closure) runs once per thread. */
struct kernel_launch {
    const char *name;
    struct grid_dim grid, block;
    size_t shared_bytes, closure_bytes;
    int warp_size; /* 32, or 64 for AMD's wavefronts */
    void (*body)(const void *closure);
    const void *closure;
};
/* One caller at a time. */
void thread_block_run_grid(const struct kernel_launch *launch);

/* The rest is for kernels: the built-in variables threadIdx, blockIdx, blockDim and gridDim. */
extern struct grid_dim *thread_block_thread_idx, thread_block_idx, thread_block_dim,
    thread_block_grid_dim;
void *thread_block_shared(void); /* the launch's shared_bytes, one buffer per block */
void thread_block_barrier(const char *file, int line);   /* __syncthreads */
void thread_block_warp_sync(const char *file, int line); /* __syncwarp */

enum { WARP_SLOT_BYTES = 64 }; /* the most that a lane can exchange */
struct warp_slot {
    unsigned char bytes[WARP_SLOT_BYTES] __attribute__((aligned(16)));
};
/* A warp-wide barrier and exchange: returns the value of every lane, indexed by lane.  The slots
 * stay valid until this thread's next call but one. */
const struct warp_slot *thread_block_warp_gather(const void *value, size_t bytes, const char *file,
                                                 int line);
/* Aborts if `lane` is outside the warp. */
void thread_block_check_lane(int lane, const char *file, int line);
/* Aborts unless all lanes of the warp took part in this thread's last gather.  PTX requires it of
 * `.aligned` instructions and of those whose mask names all lanes. */
void thread_block_check_all_lanes(const char *file, int line);

enum { ASYNC_COPY_BYTES = 16 };
/* cp.async, of zeros if `from` is NULL.  With a warp size of 32 the copy happens when the thread
 * waits for it, with 64 at once, as on AMD GPUs, which have no such instruction.  Aborts if the
 * source changes in between. */
void thread_block_copy_async(void *to, const void *from, const char *file, int line);
void thread_block_commit_copies(void); /* closes a group of copies */
/* Waits until at most `pending` groups are in flight. */
void thread_block_wait_copies(int pending);

#if defined(__cplusplus)
}
#endif
