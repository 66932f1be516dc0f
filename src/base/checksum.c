// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include "base/port.h"

#include <string.h>

/* A remainder is a polynomial over GF(2), modulo the CRC's; bit 31 is the coefficient of x^0. */
static uint32_t times_x(uint32_t a) { return a >> 1 ^ (0x82F63B78u & (0u - (a & 1))); }

static uint32_t one_byte(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = times_x(crc);
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

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--, b = times_x(b)) product ^= b & (0u - (a >> bit & 1));
    return product;
}

PORT_CRC32C_TARGET static inline uint32_t add_word(uint32_t crc, const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return port_crc32c_word(crc, word);
}

/* The instruction's latency is three times its throughput, so three adjacent parts are summed at
 * once.  The remainder of bytes followed by n zeros is theirs times x^(8 n). */
struct crc_part {
    size_t bytes;
    uint32_t after, after_two; /* x^(8 bytes), x^(16 bytes) */
};
static const struct crc_part crc_parts[] = {{16384, 0xBF455269, 0xE2EA32DC},
                                            {1024, 0xE4172B16, 0x0D65762A}};

PORT_CRC32C_TARGET static uint32_t add_three_parts(uint32_t crc, const unsigned char *at,
                                                   const struct crc_part *part)
{
    const size_t n = part->bytes;
    uint32_t second = 0, third = 0;
    for (const unsigned char *end = at + n; at < end; at += sizeof(uint64_t)) {
        crc = add_word(crc, at);
        second = add_word(second, at + n);
        third = add_word(third, at + 2 * n);
    }
    return multiply(crc, part->after_two) ^ multiply(second, part->after) ^ third;
}

PORT_CRC32C_TARGET static uint32_t add_bytes(uint32_t crc, const unsigned char *at, size_t len)
{
    for (size_t i = 0; i < sizeof crc_parts / sizeof *crc_parts; i++)
        for (size_t n = 3 * crc_parts[i].bytes; len >= n; at += n, len -= n)
            crc = add_three_parts(crc, at, &crc_parts[i]);
    for (; len >= sizeof(uint64_t); at += sizeof(uint64_t), len -= sizeof(uint64_t))
        crc = add_word(crc, at);
    for (; len; len--) crc = port_crc32c_byte(crc, *at++);
    return crc;
}

uint32_t checksum_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    if (port_has_crc32c()) return ~add_bytes(~crc, bytes, len);
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
