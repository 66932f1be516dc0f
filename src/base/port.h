/* port.h -- code that depends on the CPU or the compiler. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#define PORT_COMPILER "clang " __clang_version__
#else
#define PORT_COMPILER "gcc " __VERSION__
#endif
#if defined(__OPTIMIZE__)
enum { PORT_OPTIMIZED = 1 };
#else
enum { PORT_OPTIMIZED = 0 };
#endif
/* A build for debugging, in which all runs have debug.check_collectives. */
#if !defined(__OPTIMIZE__) || defined(LLAMERO_CHECK_COLLECTIVES)
enum { PORT_CHECK_COLLECTIVES = 1 };
#else
enum { PORT_CHECK_COLLECTIVES = 0 };
#endif
#if defined(__x86_64__)
#define PORT_PROCESSOR "x86-64"
#elif defined(__aarch64__)
#define PORT_PROCESSOR "aarch64"
#else
#define PORT_PROCESSOR "another processor"
#endif

/* CRC-32C with the CPU's own instruction, over the inverted remainder.  False: the CPU has none,
 * and *crc is unchanged. */
#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("sse4.2"))) static inline void
port_crc32c_sse42(uint32_t *crc, const unsigned char *at, size_t len)
{
    uint64_t wide = *crc;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    *crc = (uint32_t)wide;
    for (; len; len--) *crc = _mm_crc32_u8(*crc, *at++);
}

static inline bool port_crc32c(uint32_t *crc, const unsigned char *at, size_t len)
{
    if (!__builtin_cpu_supports("sse4.2")) return false;
    port_crc32c_sse42(crc, at, len);
    return true;
}
#else
static inline bool port_crc32c(uint32_t *crc, const unsigned char *at, size_t len)
{
    (void)crc, (void)at, (void)len;
    return false;
}
#endif

/* Zeroes memory with non-temporal (NT) stores, which do not read it into the caches first: for
 * memory that is not used soon.  `to` and `bytes` must be multiples of 16. */
static inline void port_zero_nt(void *to, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < bytes / 16; i++)
        _mm_stream_si128((__m128i *)to + i, _mm_setzero_si128());
    _mm_sfence();
#else
    memset(to, 0, bytes);
#endif
}

/* Has the C library return a large block to the system when it is freed.  glibc otherwise raises
 * its threshold to the largest block freed so far, and smaller blocks stay in the process. */
#if defined(M_MMAP_THRESHOLD)
static inline void port_return_large_blocks(void) { mallopt(M_MMAP_THRESHOLD, 128 << 10); }
#else
static inline void port_return_large_blocks(void) {}
#endif
