// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/peak.h"

#include "backends/cpu/sets.h"
#include "base/clock.h"

#include <math.h>
#include <omp.h>

struct burst {
    const struct cpu_set *set;
    enum dtype dtype;
};

static double rate(struct burst b, int num_threads, long rounds)
{
    double flops = 0, begin = clock_monotonic_s();
#pragma omp parallel num_threads(num_threads) reduction(+ : flops)
    flops += b.set->burst(b.dtype, rounds);
    return flops / (clock_monotonic_s() - begin);
}

static double peak_of(struct burst b, int num_threads)
{
    enum { BURSTS = 9 };
    double best = 0;
    rate(b, num_threads, 1000);                                 /* starts the threads */
    for (long rounds = 1000; rounds <= 1L << 30; rounds *= 4) { /* long enough to be timed */
        double begin = clock_monotonic_s(), quickest = INFINITY;
        for (int i = 0; i < BURSTS; i++, begin = clock_monotonic_s()) {
            double now = rate(b, num_threads, rounds), seconds = clock_monotonic_s() - begin;
            if (now > best) best = now; /* other processes only ever take away */
            if (seconds < quickest) quickest = seconds;
        }
        if (quickest > 0.003) break;
    }
    return best;
}

double cpu_peak_flops(const struct queue *on, enum dtype dtype)
{
    const struct cpu_set *set = cpu_set_best();
    if (!set) return 0;
    double best = peak_of((struct burst){set, F32}, on->num_threads), half = 0;
    if (dtype == BF16) half = peak_of((struct burst){set, BF16}, on->num_threads);
    return half > best ? half : best; /* there are processors that are slower at bf16 */
}
