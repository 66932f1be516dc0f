/* port.h -- what differs between processors, and only that. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC-32C by the processor's own instruction, over the inverted remainder.  False: it has none, and
 * nothing is done. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

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
