/* memory_check.h -- what the emulator reports to a checker of the kernels' memory accesses
 * (tests/memcheck), if one is linked.
 *
 * Time     Grows with each launch, block, __syncthreads and __syncwarp.  An access at time t is
 *          ordered before the running thread's next one if t is below block_synced, or below
 *          warp_synced of the warp that both threads are in. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fiber;
struct kernel_launch;

enum { MAX_WARPS = 32 };

extern struct memory_check_clock {
    const struct kernel_launch *launch; /* NULL while no kernel is running */
    int thread;                         /* the running one */
    const struct fiber *fiber;          /* that it runs on */
    uint32_t now, launch_began, block_began, block_synced, warp_synced[MAX_WARPS];
} memory_check_clock;

enum copy_phase { COPY_ISSUED, COPY_COMPLETE };

struct memory_check {
    void (*allocated)(const void *at, size_t bytes, bool is_pinned);
    void (*released)(const void *at, size_t bytes);
    void (*written)(const void *at, size_t bytes); /* by a copy or memset of a stream */
    /* Of a block, whose dynamic shared memory is the first `bytes` of `capacity`. */
    void (*block_began)(const void *shared, size_t bytes, size_t capacity);
    /* A cp.async of the running thread, which writes `to` at any time between the two phases.
     * from: NULL for zeros; caller: the address of the call. */
    void (*async_copy)(const void *to, const void *from, size_t bytes, enum copy_phase phase,
                       const void *caller);
};
extern const struct memory_check *memory_check; /* NULL: none */
