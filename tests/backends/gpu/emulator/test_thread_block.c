/* Kernels in C, over the primitives that emulated.h maps CUDA C++ to. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/thread_block.h"

#include "backends/gpu/emulator/death_test.h"

#define HERE __FILE__, __LINE__

enum { THREADS = 192, BLOCKS = 3 };

struct kernel_args {
    int *out; /* one per thread of the grid */
    int warp_size, mask;
};

static int global_thread(void)
{
    return (int)(thread_block_idx.x * thread_block_dim.x + thread_block_thread_idx->x);
}

static void run_kernel(const char *name, void (*body)(const void *), struct kernel_args *n,
                       unsigned threads)
{
    struct kernel_launch k = {
        .name = name,
        .grid = {BLOCKS, 1, 1},
        .block = {threads, 1, 1},
        .shared_bytes = THREADS * sizeof(int),
        .warp_size = n->warp_size,
        .body = body,
        .closure = n,
    };
    thread_block_run_grid(&k);
}

static void shuffle(const void *closure)
{
    const struct kernel_args *n = closure;
    int value = global_thread(), lane = (int)thread_block_thread_idx->x % n->warp_size;
    for (int round = 0; round < 3; round++) {
        const struct warp_slot *all = thread_block_warp_gather(&value, sizeof value, HERE);
        thread_block_check_lane(lane ^ n->mask, HERE);
        memcpy(&value, all[lane ^ n->mask].bytes, sizeof value);
    }
    n->out[global_thread()] = value;
}

TEST(lanes_of_a_warp_exchange_values)
{
    int out[THREADS * BLOCKS];
    for (int warp = 32; warp <= 64; warp *= 2)
        for (int mask = 1; mask < warp; mask *= 2) {
            struct kernel_args n = {out, warp, mask};
            run_kernel("shuffle", shuffle, &n, THREADS);
            for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i] == (i ^ mask));
        }
}

/* Each thread reads what another thread of its block wrote before the barrier. */
static void reverse(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared(), at = (int)thread_block_thread_idx->x;
    for (int round = 1; round <= 2; round++) {
        shared[at] = global_thread() * round;
        thread_block_barrier(HERE);
        n->out[global_thread()] = shared[THREADS - 1 - at];
        thread_block_barrier(HERE);
    }
}

TEST(a_barrier_makes_shared_memory_visible_to_the_block)
{
    int out[THREADS * BLOCKS];
    for (int warp = 32; warp <= 64; warp *= 2) {
        struct kernel_args n = {.out = out, .warp_size = warp};
        run_kernel("reverse", reverse, &n, THREADS);
        for (int i = 0; i < THREADS * BLOCKS; i++)
            CHECK(out[i] == 2 * (i / THREADS * THREADS + THREADS - 1 - i % THREADS));
    }
}

static void some_return(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared(), at = (int)thread_block_thread_idx->x;
    shared[at] = 1;
    n->out[global_thread()] = 0;
    if (at % 3 == 1) return;
    thread_block_warp_gather(&at, sizeof at, HERE);
    shared[at] = 2;
    thread_block_barrier(HERE);
    int sum = 0;
    for (int i = 0; i < (int)thread_block_dim.x; i++) sum += shared[i];
    n->out[global_thread()] = sum;
}

TEST(barriers_do_not_wait_for_returned_threads)
{
    int out[THREADS * BLOCKS];
    for (unsigned threads = 1; threads <= THREADS; threads += 47) {
        struct kernel_args n = {.out = out, .warp_size = 32};
        int returned = (int)(threads + 1) / 3, sum = 2 * (int)threads - returned;
        run_kernel("some_return", some_return, &n, threads);
        for (int i = 0; i < (int)threads; i++) CHECK(out[i] == (i % 3 == 1 ? 0 : sum));
    }
}

static void order(const void *closure)
{
    const struct kernel_args *n = closure;
    n->out[n->out[0]++] = global_thread();
}

TEST(blocks_and_threads_run_in_descending_order_with_warps_of_64)
{
    int out[THREADS * BLOCKS + 1];
    struct kernel_args n = {.out = out, .warp_size = 32};
    out[0] = 1;
    run_kernel("order", order, &n, THREADS);
    for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i + 1] == i);
    n.warp_size = 64, out[0] = 1;
    run_kernel("order", order, &n, THREADS);
    for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i + 1] == THREADS * BLOCKS - 1 - i);
}

static void half_at_the_barrier(const void *closure)
{
    int at = (int)thread_block_thread_idx->x;
    (void)closure;
    if (at < 16)
        thread_block_barrier(HERE);
    else
        thread_block_warp_gather(&at, sizeof at, HERE);
}

static void two_barriers(const void *closure)
{
    (void)closure;
    if (thread_block_thread_idx->x < 16)
        thread_block_barrier(HERE);
    else
        thread_block_barrier(HERE);
}

static void lane_outside(const void *closure)
{
    int at = (int)thread_block_thread_idx->x;
    (void)closure;
    thread_block_warp_gather(&at, sizeof at, HERE);
    thread_block_check_lane(32, HERE);
}

static void missing_at_sync(const void *closure)
{
    (void)closure;
    if (thread_block_thread_idx->x != 5) thread_block_warp_sync(HERE);
}

static void missing_lane(const void *closure)
{
    int at = (int)thread_block_thread_idx->x;
    (void)closure;
    if (at == 5) return;
    thread_block_warp_gather(&at, sizeof at, HERE);
    thread_block_check_all_lanes(HERE);
}

static void run_diverging(void *body)
{
    void (*const *kernel)(const void *) = body;
    struct kernel_args n = {.warp_size = 32};
    run_kernel("diverging", *kernel, &n, 64);
}

TEST(divergent_barriers_abort_and_report_where)
{
    void (*kernels[])(const void *) = {half_at_the_barrier, two_barriers, lane_outside,
                                       missing_lane, missing_at_sync};
    static const char *const messages[] = {
        "kernel diverging, block (0, 0, 0): not all threads of the block",
        "threads are at different barriers", "a shuffle from a lane outside the warp",
        "not all lanes of the warp", "not all lanes of the warp"};
    for (int i = 0; i < 5; i++) check_dies(SIGABRT, messages[i], run_diverging, &kernels[i]);
}

/* Reads the target of two copies before and after it waits for the first. */
static void copy_async(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared(), source[4] = {1, 2, 3, 4};
    if (thread_block_thread_idx->x) return;
    shared[0] = shared[4] = -1;
    thread_block_copy_async(shared, source, __FILE__, __LINE__);
    thread_block_commit_copies();
    thread_block_copy_async(shared + 4, NULL, __FILE__, __LINE__);
    thread_block_commit_copies();
    n->out[0] = shared[0], n->out[1] = shared[4];
    thread_block_wait_copies(1);
    n->out[2] = shared[0], n->out[3] = shared[4];
    thread_block_wait_copies(0);
    n->out[4] = shared[4];
    if (n->mask) thread_block_copy_async(shared, source, __FILE__, __LINE__), source[2] = 5;
    thread_block_commit_copies();
    thread_block_wait_copies(0);
}

static void run_copy_async(void *args) { run_kernel("copy_async", copy_async, args, THREADS); }

TEST(async_copies_happen_when_they_are_waited_for_with_warps_of_32)
{
    int out[5];
    struct kernel_args n = {.out = out, .warp_size = 32};
    run_copy_async(&n);
    CHECK(out[0] == -1 && out[1] == -1 && out[2] == 1 && out[3] == -1 && out[4] == 0);
    n.warp_size = 64;
    run_copy_async(&n);
    CHECK(out[0] == 1 && out[1] == 0 && out[2] == 1 && out[3] == 0 && out[4] == 0);
}

TEST(change_of_an_async_copys_source_aborts)
{
    int out[5];
    struct kernel_args n = {.out = out, .warp_size = 32, .mask = 1};
    check_dies(SIGABRT, "the source of this cp.async has changed", run_copy_async, &n);
}

static void return_early(const void *closure)
{
    static const int source[4];
    (void)closure;
    thread_block_copy_async(thread_block_shared(), source, __FILE__, __LINE__);
    thread_block_commit_copies();
}

static void run_return_early(void *args) { run_kernel("return_early", return_early, args, 1); }

TEST(return_before_an_async_copy_is_complete_aborts)
{
    struct kernel_args n = {.warp_size = 32};
    check_dies(SIGABRT, "a thread returns without waiting for this cp.async", run_return_early, &n);
}
