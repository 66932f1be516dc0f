// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include "base/port.h"

#include <string.h>

static uint32_t one_byte(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    return crc;
}

uint32_t checksum_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
{
    uint32_t table[256];
    const unsigned char *at = bytes;
    for (uint32_t i = 0; i < 256; i++) table[i] = one_byte(i, 0);
    crc = ~crc;
    for (; len; len--) crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
    return ~crc;
}

uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    uint32_t inverted = ~crc;
    if (port_crc32c(&inverted, bytes, len)) return ~inverted;
    return checksum_crc32c_portable(crc, bytes, len);
}

/* `copy`: each piece is copied there and summed there; NULL: it is summed where it is. */
static uint32_t sum_pieces(uint32_t crc, const char *bytes, char *copy, size_t len, int num_threads)
{
    enum { ROUND = 64 };
    const size_t count = (len + CHECKSUM_PIECE - 1) / CHECKSUM_PIECE;
    for (size_t done = 0; done < count; done += ROUND) {
        uint32_t crcs[ROUND];
        const size_t n = count - done < ROUND ? count - done : ROUND;
#pragma omp parallel for schedule(static) num_threads(num_threads) if (n > 1)
        for (size_t i = 0; i < n; i++) {
            size_t at = (done + i) * CHECKSUM_PIECE, left = len - at;
            size_t piece = left < CHECKSUM_PIECE ? left : CHECKSUM_PIECE;
            if (copy) memcpy(copy + at, bytes + at, piece);
            crcs[i] = checksum_crc32c(0, (copy ? copy : bytes) + at, piece);
        }
        crc = checksum_crc32c(crc, crcs, n * sizeof *crcs);
    }
    return crc;
}

uint32_t checksum_pieces(uint32_t crc, const void *bytes, size_t len, int num_threads)
{
    return sum_pieces(crc, bytes, NULL, len, num_threads);
}

uint32_t checksum_copy_pieces(void *to, const void *from, size_t len, int num_threads)
{
    return sum_pieces(0, from, to, len, num_threads);
}

/* A bijection for each word, so that data which differ in one word never collide. */
static uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return (hash ^ hash >> 29) + UINT64_C(0xA0761D6478BD642F); /* a run of zeros changes it, too */
}

uint64_t checksum_hash64(uint64_t seed, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t word, hash = mix_word(seed, len);
    for (; len >= sizeof word; at += sizeof word, len -= sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = mix_word(hash, word);
    }
    word = 0;
    if (len) memcpy(&word, at, len);
    return mix_word(hash, word);
}
