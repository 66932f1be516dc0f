// SPDX-License-Identifier: Apache-2.0
#include "machine/peak.h"

#include "backends/cpu/isa.h"
#include "base/arena.h"
#include "base/clock.h"

#include <math.h>
#include <omp.h>
#include <unistd.h>

/* A loop that every thread runs for a number of rounds. */
struct burst_loop {
    const struct isa *isa;
    enum dtype dtype;
    int num_threads;
    unsigned char *panels; /* `bytes` for each thread; NULL: a burst in registers */
    size_t bytes;
};

static double measure_flops(const struct burst_loop *l, long rounds)
{
    double flops = 0, begin = clock_monotonic_s();
#pragma omp parallel num_threads(l->num_threads) reduction(+ : flops)
    flops += l->panels ? l->isa->microkernel_bench(
                             l->panels + (size_t)omp_get_thread_num() * l->bytes, l->bytes, rounds)
                       : l->isa->burst(l->dtype, rounds);
    return flops / (clock_monotonic_s() - begin);
}

/* The best rate of several runs; *shortest_s is the time of the quickest. */
static double best_of_repeats(const struct burst_loop *l, long rounds, double *shortest_s)
{
    enum { REPEATS = 5 };
    double best = 0;
    *shortest_s = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double begin = clock_monotonic_s(), rate = measure_flops(l, rounds);
        double took = clock_monotonic_s() - begin;
        if (rate > best) best = rate; /* interference only ever slows down */
        if (took < *shortest_s) *shortest_s = took;
    }
    return best;
}

/* The best rate; *rounds is a count that takes at least `seconds`.  On shared cores a few rounds
 * may be preempted for as long as many would take, so a rate only counts if doubling the rounds
 * does not improve it by 10 %. */
static double best_rate(const struct burst_loop *l, double seconds, long *rounds)
{
    double best = 0, shortest_s, rate;
    measure_flops(l, 1); /* starts the threads */
    for (*rounds = 1; *rounds<1L << 40; *rounds *= 2, best = rate> best ? rate : best) {
        rate = best_of_repeats(l, *rounds, &shortest_s);
        if (shortest_s > seconds && rate < 1.1 * best) return best > rate ? best : rate;
    }
    return best;
}

struct peak_burst peak_burst_make(const struct ops *ops, int num_threads, enum dtype dtype,
                                  double seconds)
{
    struct burst_loop l = {.isa = isa_of_ops(ops), .num_threads = num_threads};
    struct peak_burst b = {l.isa, F32, num_threads, 0};
    if (!l.isa) return b;
    double best = best_rate(&l, seconds, &b.rounds), bf16_rate = 0;
    long rounds = 0;
    l.dtype = BF16;
    if (dtype == BF16) bf16_rate = best_rate(&l, seconds, &rounds);
    if (bf16_rate > best)
        b.dtype = BF16, b.rounds = rounds; /* some processors are slower at bf16 */
    return b;
}

double peak_burst_run(const struct peak_burst *b)
{
    struct burst_loop l = {.isa = b->isa, .dtype = b->dtype, .num_threads = b->num_threads};
    return b->isa ? measure_flops(&l, b->rounds) : 0;
}

double peak_measure_flops(const struct ops *ops, int num_threads, enum dtype dtype)
{
    struct burst_loop l = {.isa = isa_of_ops(ops), .num_threads = num_threads};
    long rounds;
    if (!l.isa) return 0;
    double best = best_rate(&l, 0.003, &rounds), bf16_rate = 0;
    l.dtype = BF16;
    if (dtype == BF16) bf16_rate = best_rate(&l, 0.003, &rounds);
    return bf16_rate > best ? bf16_rate : best;
}

/* Small values of either sign, valid as bf16 and as f32, with random mantissas: the units draw more
 * power for them than for zeros or constants, and clock lower. */
static void fill_operands(void *to, size_t count)
{
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes, 7.1 */
        ((bf16 *)to)[i] = (bf16)(0x3C00 + (state >> 23) + (state >> 7 & 0x8000));
    }
}

enum status peak_measure_micro_kernel(const struct ops *ops, int num_threads, size_t bytes,
                                      double *flops)
{
    struct arena memory = {0};
    const struct isa *isa = isa_of_ops(ops);
    long rounds;
    size_t total_bytes, padded = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    *flops = 0;
    if (!isa) return STATUS_OK;
    if (__builtin_mul_overflow(padded, (size_t)num_threads, &total_bytes))
        FAIL(MEMORY, "micro-kernel benchmark: cannot allocate %zu bytes for each of %d threads",
             bytes, num_threads);
    TRY(arena_init(&memory, total_bytes, NULL));
    fill_operands(memory.base, total_bytes / sizeof(bf16));
    struct burst_loop l = {
        .isa = isa, .num_threads = num_threads, .panels = memory.base, .bytes = padded};
    *flops = best_rate(&l, 0.003, &rounds);
    arena_release(&memory);
    return STATUS_OK;
}

size_t peak_cache_bytes(int level)
{
    long bytes = sysconf(level == 1 ? _SC_LEVEL1_DCACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
    if (bytes > 0) return (size_t)bytes;
    return level == 1 ? 32 << 10 : 256 << 10;
}
