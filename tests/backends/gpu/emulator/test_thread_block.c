/* Kernels here are C: what the words of CUDA's C++ come down to. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/emulator/thread_block.h"

#include "backends/gpu/emulator/death_test.h"

#define HERE __FILE__, __LINE__

enum { THREADS = 192, BLOCKS = 3 };

struct numbers {
    int *out; /* one a thread of the grid */
    int wave, mask;
};

static int self(void)
{
    return (int)(gpu_emulator_block.x * gpu_emulator_block_size.x + gpu_emulator_thread->x);
}

static void run(const char *name, void (*body)(const void *), struct numbers *n, unsigned threads)
{
    struct gpu_emulator_kernel k = {
        .name = name,
        .grid = {BLOCKS, 1, 1},
        .block = {threads, 1, 1},
        .shared_bytes = THREADS * sizeof(int),
        .wave = n->wave,
        .body = body,
        .closure = n,
    };
    block_run_grid(&k);
}

static void shuffle(const void *closure)
{
    const struct numbers *n = closure;
    int mine = self(), lane = (int)gpu_emulator_thread->x % n->wave;
    for (int round = 0; round < 3; round++) {
        const struct gpu_emulator_slot *all = gpu_emulator_gather(&mine, sizeof mine, HERE);
        gpu_emulator_check_lane(lane ^ n->mask, HERE);
        memcpy(&mine, all[lane ^ n->mask].bytes, sizeof mine);
    }
    n->out[self()] = mine;
}

TEST(lanes_of_a_wave_exchange_what_they_have)
{
    int out[THREADS * BLOCKS];
    for (int wave = 32; wave <= 64; wave *= 2)
        for (int mask = 1; mask < wave; mask *= 2) {
            struct numbers n = {out, wave, mask};
            run("shuffle", shuffle, &n, THREADS);
            for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i] == (i ^ mask));
        }
}

/* Each thread reads what another of its block wrote before the barrier. */
static void reverse(const void *closure)
{
    const struct numbers *n = closure;
    int *shared = gpu_emulator_shared(), at = (int)gpu_emulator_thread->x;
    for (int round = 1; round <= 2; round++) {
        shared[at] = self() * round;
        gpu_emulator_barrier(HERE);
        n->out[self()] = shared[THREADS - 1 - at];
        gpu_emulator_barrier(HERE);
    }
}

TEST(a_block_meets_at_a_barrier_and_shares_memory)
{
    int out[THREADS * BLOCKS];
    for (int wave = 32; wave <= 64; wave *= 2) {
        struct numbers n = {.out = out, .wave = wave};
        run("reverse", reverse, &n, THREADS);
        for (int i = 0; i < THREADS * BLOCKS; i++)
            CHECK(out[i] == 2 * (i / THREADS * THREADS + THREADS - 1 - i % THREADS));
    }
}

static void some_return(const void *closure)
{
    const struct numbers *n = closure;
    int *shared = gpu_emulator_shared(), at = (int)gpu_emulator_thread->x;
    shared[at] = 1;
    n->out[self()] = 0;
    if (at % 3 == 1) return;
    gpu_emulator_gather(&at, sizeof at, HERE);
    shared[at] = 2;
    gpu_emulator_barrier(HERE);
    int sum = 0;
    for (int i = 0; i < (int)gpu_emulator_block_size.x; i++) sum += shared[i];
    n->out[self()] = sum;
}

TEST(threads_that_have_returned_are_not_waited_for)
{
    int out[THREADS * BLOCKS];
    for (unsigned threads = 1; threads <= THREADS; threads += 47) {
        struct numbers n = {.out = out, .wave = 32};
        int gone = (int)(threads + 1) / 3, sum = 2 * (int)threads - gone;
        run("some_return", some_return, &n, threads);
        for (int i = 0; i < (int)threads; i++) CHECK(out[i] == (i % 3 == 1 ? 0 : sum));
    }
}

static void order(const void *closure)
{
    const struct numbers *n = closure;
    n->out[n->out[0]++] = self();
}

TEST(a_wave_of_64_runs_backwards)
{
    int out[THREADS * BLOCKS + 1];
    struct numbers n = {.out = out, .wave = 32};
    out[0] = 1;
    run("order", order, &n, THREADS);
    for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i + 1] == i);
    n.wave = 64, out[0] = 1;
    run("order", order, &n, THREADS);
    for (int i = 0; i < THREADS * BLOCKS; i++) CHECK(out[i + 1] == THREADS * BLOCKS - 1 - i);
}

static void half_at_a_barrier(const void *closure)
{
    int at = (int)gpu_emulator_thread->x;
    (void)closure;
    if (at < 16)
        gpu_emulator_barrier(HERE);
    else
        gpu_emulator_gather(&at, sizeof at, HERE);
}

static void two_barriers(const void *closure)
{
    (void)closure;
    if (gpu_emulator_thread->x < 16)
        gpu_emulator_barrier(HERE);
    else
        gpu_emulator_barrier(HERE);
}

static void absent_lane(const void *closure)
{
    int at = (int)gpu_emulator_thread->x;
    (void)closure;
    if (at == 5) return;
    gpu_emulator_gather(&at, sizeof at, HERE);
    gpu_emulator_check_lane(at ^ 1, HERE);
}

static void run_diverging(void *body)
{
    void (*const *kernel)(const void *) = body;
    struct numbers n = {.wave = 32};
    run("diverging", *kernel, &n, 64);
}

TEST(a_barrier_that_not_all_reach_ends_the_program_and_says_where)
{
    void (*kernels[])(const void *) = {half_at_a_barrier, two_barriers, absent_lane};
    static const char *const words[] = {"kernel diverging, block (0, 0, 0): not all of the block",
                                        "threads are at different barriers",
                                        "a shuffle from a lane that is not there"};
    for (int i = 0; i < 3; i++) check_ends(SIGABRT, words[i], run_diverging, &kernels[i]);
}
