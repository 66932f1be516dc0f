/* Kernels with one defect each, and the same kernels without it.  This file is compiled as the
 * kernels are. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/death_test.h"
#include "backends/gpu/emulator/emulator.h"

#define HERE __FILE__, __LINE__

enum { THREADS = 64, BLOCKS = 2, DEVICE_BYTES = 1000 };

struct vector {
    int x[4];
} __attribute__((aligned(16)));

/* A kernel: with `is_defective` it has one defect. */
struct kernel_args {
    int *device; /* DEVICE_BYTES, of which the first BLOCKS * THREADS ints are 0 */
    int *host;
    bool is_defective;
};

static int thread_index(void) { return (int)thread_block_thread_idx->x; }
static int global_index(void) { return (int)thread_block_idx.x * THREADS + thread_index(); }

static void run(void (*body)(const void *), bool is_defective, int warp_size)
{
    struct kernel_args n = {.host = heap(sizeof *n.host), .is_defective = is_defective};
    gpu_stream stream;
    CHECK(!emulator_malloc((void **)&n.device, DEVICE_BYTES) && !emulator_stream_create(&stream));
    CHECK(!emulator_memset(n.device, 0, BLOCKS * THREADS * sizeof(int), stream));
    struct kernel_launch k = {.name = "defective",
                              .grid = {BLOCKS, 1, 1},
                              .block = {THREADS, 1, 1},
                              .shared_bytes = THREADS * sizeof(int),
                              .warp_size = warp_size,
                              .body = body,
                              .closure = &n,
                              .closure_bytes = sizeof n};
    emulator_launch(&k, stream);
    CHECK(!emulator_stream_destroy(stream) && !emulator_free(n.device));
    free(n.host);
}

struct defect {
    void (*body)(const void *);
    int warp_size;
};

static void run_defective(void *defect)
{
    const struct defect *d = defect;
    run(d->body, true, d->warp_size);
}

/* The kernel dies of its defect, and prints the text; without it, it does not. */
static void check_reported(void (*body)(const void *), const char *text)
{
    for (int warp_size = 32; warp_size <= 64; warp_size *= 2) {
        struct defect d = {body, warp_size};
        run(body, false, warp_size);
        check_dies(SIGABRT, text, run_defective, &d);
    }
}

static void reverse_block(const void *closure)
{
    static int shared[THREADS];
    const struct kernel_args *n = closure;
    shared[thread_index()] = 0;
    thread_block_barrier(HERE);
    shared[thread_index()] = 1;
    if (!n->is_defective) thread_block_barrier(HERE);
    n->device[global_index()] = shared[THREADS - 1 - thread_index()];
}

TEST(read_of_another_threads_write_without_a_barrier_is_a_race)
{
    check_reported(reverse_block, "of shared memory at test_memcheck.c:");
}

static void overwrite_read(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared();
    shared[thread_index()] = 1;
    thread_block_barrier(HERE);
    n->device[global_index()] = shared[thread_index() ^ 32];
    if (!n->is_defective) thread_block_barrier(HERE);
    shared[thread_index()] = 2;
}

TEST(write_of_what_another_thread_reads_without_a_barrier_is_a_race)
{
    check_reported(overwrite_read, "without a barrier in between");
}

/* A shuffle is no barrier. */
static void exchange_in_warp(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared(), value = 1;
    shared[thread_index()] = value;
    thread_block_warp_gather(&value, sizeof value, HERE);
    if (!n->is_defective) thread_block_warp_sync(HERE);
    n->device[global_index()] = shared[thread_index() ^ 1];
}

TEST(shuffle_does_not_replace_a_warp_sync)
{
    check_reported(exchange_in_warp, "without a barrier in between");
}

/* Nor does a __syncwarp order two warps, of 32 or of 64 lanes. */
static void exchange_between_warps(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared(), lane = thread_index() % 32;
    shared[thread_index()] = 0;
    thread_block_barrier(HERE);
    shared[thread_index()] = 1;
    if (n->is_defective)
        thread_block_warp_sync(HERE);
    else
        thread_block_barrier(HERE);
    n->device[global_index()] = shared[lane + 32 - thread_index() / 32 * 32];
}

TEST(warp_sync_does_not_order_two_warps)
{
    struct defect d = {exchange_between_warps, 32};
    run(d.body, false, 32);
    run(d.body, true, 64); /* one warp */
    check_dies(SIGABRT, "without a barrier in between", run_defective, &d);
}

/* All threads write the same value. */
static void write_flag(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared();
    if (n->is_defective || thread_index() == 0) shared[0] = 1;
}

TEST(two_writes_of_the_same_value_are_a_race) { check_reported(write_flag, "writes 4 bytes"); }

static void count(const void *closure)
{
    const struct kernel_args *n = closure;
    volatile int *sum = n->device;
    if (n->is_defective)
        n->device[0]++;
    else
        *sum = *sum + 1;
}

TEST(atomics_do_not_race_with_each_other_but_other_increments_do)
{
    check_reported(count, "without a barrier in between");
}

static void write_for_all_blocks(const void *closure)
{
    const struct kernel_args *n = closure;
    if (thread_index()) return;
    n->device[n->is_defective ? 0 : global_index()] = 1;
}

TEST(two_blocks_that_write_a_word_race)
{
    struct defect d = {write_for_all_blocks, 32};
    run(d.body, false, 32);
    check_dies(SIGABRT,
               "block (1, 0, 0): thread 0 writes 4 bytes at test_memcheck.c:", run_defective, &d);
    check_dies(SIGABRT,
               "which thread 0 of block (0, 0, 0) wrote at test_memcheck.c:", run_defective, &d);
    d.warp_size = 64;
    check_dies(SIGABRT, "in the same launch", run_defective, &d);
}

/* All warps of both blocks read a word that one thread then writes. */
static void write_after_reads_of_two_warps(const void *closure)
{
    const struct kernel_args *n = closure;
    int x = n->device[0];
    thread_block_warp_sync(HERE);
    if (!n->is_defective) thread_block_barrier(HERE);
    if (thread_index() == (int)thread_block_dim.x - 1)
        n->device[4 * (int)thread_block_idx.x + 1] = x;
    if (thread_index() == 0 && thread_block_idx.x == 1) n->device[n->is_defective ? 0 : 2] = x;
}

TEST(write_races_with_reads_of_other_warps_and_blocks)
{
    check_reported(write_after_reads_of_two_warps, "in the same launch");
}

static void access_beyond_shared(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared();
    shared[thread_index() + n->is_defective] = 1;
}

TEST(access_beyond_dynamic_shared_memory_is_reported)
{
    check_reported(access_beyond_shared, "of shared memory beyond the 256 bytes of the launch");
}

static void access_beyond_device(const void *closure)
{
    const struct kernel_args *n = closure;
    if (thread_index() == 0 && thread_block_idx.x == 0)
        ((char *)n->device)[DEVICE_BYTES - !n->is_defective] = 1;
}

TEST(access_one_byte_beyond_device_memory_is_reported)
{
    check_reported(access_beyond_device, "writes 1 bytes outside all allocations");
}

static void access_host(const void *closure)
{
    const struct kernel_args *n = closure;
    if (n->is_defective) n->device[global_index()] = *n->host;
}

TEST(access_to_host_memory_is_reported)
{
    check_reported(access_host, "reads 4 bytes outside all allocations");
}

static void read_unwritten_device(const void *closure)
{
    const struct kernel_args *n = closure;
    n->device[global_index()] = n->device[global_index() + n->is_defective];
}

TEST(read_of_device_memory_that_nothing_wrote_is_reported)
{
    struct defect d = {read_unwritten_device, 64}; /* the last thread runs first */
    run(d.body, false, 64);
    check_dies(SIGABRT, "reads 4 bytes that nothing has written", run_defective, &d);
}

static void read_unwritten_shared(const void *closure)
{
    const struct kernel_args *n = closure;
    int *shared = thread_block_shared();
    /* What the first block wrote does not count in the second. */
    if (!n->is_defective || thread_block_idx.x == 0) shared[thread_index()] = 1;
    n->device[global_index()] = shared[thread_index()];
}

TEST(shared_memory_is_uninitialized_in_each_block)
{
    check_reported(read_unwritten_shared, "of shared memory that nothing has written");
}

static void load_misaligned(const void *closure)
{
    const struct kernel_args *n = closure;
    struct vector *to = (struct vector *)n->device + thread_index();
    if (thread_block_idx.x == 0 && thread_index() < 16)
        *to = *(const struct vector *)((int *)to + n->is_defective);
}

TEST(misaligned_vector_load_is_reported)
{
    check_reported(load_misaligned, "reads 16 bytes at a misaligned address");
}

/* Each thread copies a vector, waits for it, and reads it. */
static void copy_async(const void *closure)
{
    const struct kernel_args *n = closure;
    struct vector *shared = thread_block_shared();
    if (thread_index() >= 16) return;
    thread_block_copy_async(shared + thread_index(), n->device + 4 * thread_index(), __FILE__,
                            __LINE__);
    thread_block_commit_copies();
    if (!n->is_defective) thread_block_wait_copies(0);
    if (shared[thread_index()].x[1]) thread_block_warp_sync(HERE);
}

/* The same, and reads that of another thread. */
static void copy_async_for_others(const void *closure)
{
    const struct kernel_args *n = closure;
    struct vector *shared = thread_block_shared();
    int lane = thread_index() % 16;
    if (thread_index() < 16) shared[lane] = (struct vector){{0}};
    thread_block_barrier(HERE);
    if (thread_index() < 16)
        thread_block_copy_async(shared + lane, n->device + 4 * lane, __FILE__, __LINE__);
    thread_block_commit_copies();
    thread_block_wait_copies(0);
    if (!n->is_defective) thread_block_barrier(HERE);
    if (shared[lane ^ 1].x[1]) thread_block_warp_sync(HERE);
}

/* The first of two groups. */
static void wait_for_one_group(const void *closure)
{
    const struct kernel_args *n = closure;
    struct vector *shared = thread_block_shared();
    if (thread_index()) return;
    thread_block_copy_async(shared, n->device, __FILE__, __LINE__);
    thread_block_commit_copies();
    thread_block_copy_async(shared + 1, NULL, __FILE__, __LINE__);
    thread_block_commit_copies();
    thread_block_wait_copies(1);
    if (shared[n->is_defective].x[0]) thread_block_warp_sync(HERE);
    thread_block_wait_copies(0);
}

static void overwrite_async_copy(const void *closure)
{
    const struct kernel_args *n = closure;
    struct vector *shared = thread_block_shared();
    if (thread_index()) return;
    thread_block_copy_async(shared, NULL, __FILE__, __LINE__);
    thread_block_commit_copies();
    if (!n->is_defective) thread_block_wait_copies(0);
    shared[0].x[2] = 1;
}

TEST(async_copy_must_be_waited_for_before_its_target_is_accessed)
{
    struct defect defects[] = {
        {copy_async, 32}, {wait_for_one_group, 32}, {overwrite_async_copy, 32}};
    for (int i = 0; i < 3; i++) {
        run(defects[i].body, false, 32);
        run(defects[i].body, true, 64); /* copies at once */
        check_dies(SIGABRT, "may still write with cp.async at test_memcheck.c:", run_defective,
                   &defects[i]);
    }
    check_reported(copy_async_for_others, "without a barrier in between");
}
