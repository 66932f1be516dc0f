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

/* The CPU's instruction for CRC-32C, over the inverted remainder.  Only functions that are marked
 * PORT_CRC32C_TARGET call it, and only if port_has_crc32c() is true. */
#if defined(__x86_64__)
#include <immintrin.h>
#define PORT_CRC32C_TARGET __attribute__((target("sse4.2")))
static inline bool port_has_crc32c(void) { return __builtin_cpu_supports("sse4.2"); }
PORT_CRC32C_TARGET static inline uint32_t port_crc32c_word(uint32_t crc, uint64_t word)
{
    return (uint32_t)_mm_crc32_u64(crc, word);
}
PORT_CRC32C_TARGET static inline uint32_t port_crc32c_byte(uint32_t crc, unsigned char byte)
{
    return _mm_crc32_u8(crc, byte);
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
#define PORT_CRC32C_TARGET
static inline bool port_has_crc32c(void)
{
    enum { CRC32 = 1 << 7 }; /* HWCAP_CRC32 of <asm/hwcap.h> */
    return getauxval(AT_HWCAP) & CRC32;
}
static inline uint32_t port_crc32c_word(uint32_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint32_t port_crc32c_byte(uint32_t crc, unsigned char byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}
#else
#define PORT_CRC32C_TARGET
static inline bool port_has_crc32c(void) { return false; }
static inline uint32_t port_crc32c_word(uint32_t crc, uint64_t word)
{
    (void)word;
    return crc;
}
static inline uint32_t port_crc32c_byte(uint32_t crc, unsigned char byte)
{
    (void)byte;
    return crc;
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
