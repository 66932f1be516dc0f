// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/peak.h"

#include "base/arena.h"
#include "base/clock.h"

#include <math.h>
#include <omp.h>
#include <unistd.h>

/* Work that every thread does for so many rounds. */
struct loop {
    const struct cpu_set *set;
    enum dtype dtype;
    int num_threads;
    unsigned char *panels; /* `bytes` for each thread; NULL: a burst in registers */
    size_t bytes;
};

static double rate(const struct loop *l, long rounds)
{
    double flops = 0, begin = clock_monotonic_s();
#pragma omp parallel num_threads(l->num_threads) reduction(+ : flops)
    flops += l->panels ? l->set->feed(l->panels + (size_t)omp_get_thread_num() * l->bytes, l->bytes,
                                      rounds)
                       : l->set->burst(l->dtype, rounds);
    return flops / (clock_monotonic_s() - begin);
}

/* The best rate of several of `rounds` each; *quickest: the least time one took. */
static double best_of_few(const struct loop *l, long rounds, double *quickest)
{
    enum { TIMES = 5 };
    double best = 0;
    *quickest = INFINITY;
    for (int i = 0; i < TIMES; i++) {
        double begin = clock_monotonic_s(), now = rate(l, rounds);
        double took = clock_monotonic_s() - begin;
        if (now > best) best = now; /* other processes only ever take away */
        if (took < *quickest) *quickest = took;
    }
    return best;
}

/* The best rate; *rounds: what takes at least `seconds`.  On cores that are shared with others a
 * few rounds may take as long as many, so those only count that are no slower than twice as many.
 */
static double best_of(const struct loop *l, double seconds, long *rounds)
{
    double best = 0, quickest, now;
    rate(l, 1); /* starts the threads */
    for (*rounds = 1; *rounds<1L << 40; *rounds *= 2, best = now> best ? now : best) {
        now = best_of_few(l, *rounds, &quickest);
        if (quickest > seconds && now < 1.1 * best) return best > now ? best : now;
    }
    return best;
}

struct cpu_burst cpu_burst_make(const struct queue *on, enum dtype dtype, double seconds)
{
    struct loop l = {.set = cpu_set_best(), .num_threads = on->num_threads};
    struct cpu_burst b = {l.set, F32, on->num_threads, 0};
    if (!l.set) return b;
    double best = best_of(&l, seconds, &b.rounds), half = 0;
    long rounds = 0;
    l.dtype = BF16;
    if (dtype == BF16) half = best_of(&l, seconds, &rounds);
    if (half > best) b.dtype = BF16, b.rounds = rounds; /* some processors are slower at bf16 */
    return b;
}

double cpu_burst_run(const struct cpu_burst *b)
{
    struct loop l = {.set = b->set, .dtype = b->dtype, .num_threads = b->num_threads};
    return b->set ? rate(&l, b->rounds) : 0;
}

double cpu_peak_flops(const struct queue *on, enum dtype dtype)
{
    struct loop l = {.set = cpu_set_best(), .num_threads = on->num_threads};
    long rounds;
    if (!l.set) return 0;
    double best = best_of(&l, 0.003, &rounds), half = 0;
    l.dtype = BF16;
    if (dtype == BF16) half = best_of(&l, 0.003, &rounds);
    return half > best ? half : best;
}

/* Small numbers of either sign, as bf16 and as f32, with all bits of a mantissa: units draw more
 * power for them than for zeros or for equal numbers, and run slower. */
static void fill(void *to, size_t count)
{
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes, 7.1 */
        ((bf16 *)to)[i] = (bf16)(0x3C00 + (state >> 23) + (state >> 7 & 0x8000));
    }
}

enum status cpu_feed_flops(const struct queue *on, const struct cpu_set *set, size_t bytes,
                           double *flops)
{
    struct arena memory = {0};
    long rounds;
    size_t all, padded = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (__builtin_mul_overflow(padded, (size_t)on->num_threads, &all))
        FAIL(MEMORY, "panels of %zu bytes for %d threads", bytes, on->num_threads);
    TRY(arena_init(&memory, all, NULL));
    fill(memory.base, all / sizeof(bf16));
    struct loop l = {
        .set = set, .num_threads = on->num_threads, .panels = memory.base, .bytes = padded};
    *flops = best_of(&l, 0.003, &rounds);
    arena_release(&memory);
    return STATUS_OK;
}

size_t cpu_cache_bytes(int level)
{
    long bytes = sysconf(level == 1 ? _SC_LEVEL1_DCACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
    if (bytes > 0) return (size_t)bytes;
    return level == 1 ? 32 << 10 : 256 << 10;
}
