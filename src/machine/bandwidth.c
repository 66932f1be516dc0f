// SPDX-License-Identifier: Apache-2.0
#include "machine/bandwidth.h"

#include "base/clock.h"

#include <omp.h>
#include <stdint.h>
#include <string.h>

const char *bandwidth_name(enum bandwidth_kernel s)
{
    static const char *const names[] = {
#define X(name, text) #name,
        BANDWIDTH_LIST(X)
#undef X
    };
    return names[s];
}

static uint64_t read_all(const uint64_t *x, size_t n)
{
    uint64_t all = 0;
#pragma omp simd reduction(| : all)
    for (size_t i = 0; i < n; i++) all |= x[i];
    return all;
}

static void update_all(uint64_t *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) x[i] ^= 1;
}

/* One thread's part.  Large memset and memcpy use NT stores, which a plain loop does not. */
static void run_kernel(enum bandwidth_kernel s, unsigned char *at, unsigned char *to, size_t bytes)
{
    enum { BYTE = 0x11 };
    size_t n = bytes / sizeof(uint64_t);
    uint64_t result = 0;
    switch (s) {
    case BANDWIDTH_read: result = read_all((const uint64_t *)(const void *)at, n); break;
    case BANDWIDTH_write: memset(at, BYTE, bytes); break;
    case BANDWIDTH_copy: memcpy(to, at, bytes); break;
    case BANDWIDTH_update: update_all((uint64_t *)(void *)at, n); break;
    case BANDWIDTH_COUNT: break;
    }
    __asm__ volatile("" ::"r"(result) : "memory"); /* keeps the reads from being optimized away */
}

double bandwidth_measure(enum bandwidth_kernel s, void *memory, size_t bytes, int num_threads)
{
    enum { LINE = 64 };
    unsigned char *base = memory;
    size_t half = bytes / 2, span = s == BANDWIDTH_copy ? half : bytes;
    size_t part = (span / LINE + (size_t)num_threads - 1) / (size_t)num_threads * LINE;
    double begin = clock_monotonic_s();
#pragma omp parallel num_threads(num_threads)
    {
        size_t first = (size_t)omp_get_thread_num() * part;
        size_t end = first + part < span ? first + part : span;
        if (first < end) run_kernel(s, base + first, base + half + first, end - first);
    }
    double seconds = clock_monotonic_s() - begin;
    return (double)span * (s == BANDWIDTH_copy || s == BANDWIDTH_update ? 2 : 1) / seconds;
}

double bandwidth_measure_best(enum bandwidth_kernel s, void *memory, size_t bytes, int num_threads,
                              int passes)
{
    double best = 0;
    for (int i = 0; i < passes; i++) {
        double rate = bandwidth_measure(s, memory, bytes, num_threads);
        if (rate > best) best = rate;
    }
    return best;
}
