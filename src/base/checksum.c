// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <string.h>

static uint32_t one_byte(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    return crc;
}

static uint32_t portable(uint32_t crc, const unsigned char *at, size_t len)
{
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) table[i] = one_byte(i, 0);
    for (; len; len--) crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("sse4.2"))) static uint32_t sse42(uint32_t crc, const unsigned char *at,
                                                        size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; len; len--) crc = _mm_crc32_u8(crc, *at++);
    return crc;
}
#endif

uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~sse42(~crc, bytes, len);
#endif
    return ~portable(~crc, bytes, len);
}
