// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/checksum.h"

TEST(checksum_matches_published_values)
{
    unsigned char zeros[32] = {0}, ones[32], up[32];
    memset(ones, 0xFF, sizeof ones);
    for (unsigned i = 0; i < 32; i++) up[i] = (unsigned char)i;
    CHECK(checksum_crc32c(0, "123456789", 9) == 0xE3069283);
    /* RFC 3720, appendix B.4. */
    CHECK(checksum_crc32c(0, zeros, 32) == 0x8A9136AA);
    CHECK(checksum_crc32c(0, ones, 32) == 0x62A8AB43);
    CHECK(checksum_crc32c(0, up, 32) == 0x46DD794E);
    CHECK(checksum_crc32c(0, "", 0) == 0);
}

TEST(checksum_of_chunks_equals_that_of_the_whole)
{
    unsigned char bytes[257];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * i + 7 * i);
    uint32_t whole = checksum_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t first = checksum_crc32c(0, bytes, cut);
        CHECK(checksum_crc32c(first, bytes + cut, sizeof bytes - cut) == whole);
    }
}

TEST(checksum_detects_every_flipped_bit)
{
    unsigned char bytes[40] = "a short text, and each of its bits";
    uint32_t good = checksum_crc32c(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK(checksum_crc32c(0, bytes, sizeof bytes) != good);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

TEST(checksum_is_the_same_with_and_without_cpu_instructions)
{
    enum { SIZE = 200000 };
    unsigned char *bytes = heap(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * i * i + i / 7 + 5);
    for (size_t from = 0; from < 9; from++)
        for (size_t len = 0; len <= 1100; len++) {
            uint32_t crc = (uint32_t)(from * 0x9E3779B9u + len);
            CHECK(checksum_crc32c(crc, bytes + from, len) ==
                  checksum_crc32c_portable(crc, bytes + from, len));
        }
    for (size_t len = 0; len <= SIZE; len += len < 8000 ? 1 : 1019) {
        size_t from = len % 8 < SIZE - len ? len % 8 : 0;
        CHECK(checksum_crc32c(7, bytes + from, len) ==
              checksum_crc32c_portable(7, bytes + from, len));
    }
    free(bytes);
}

TEST(hash64_detects_every_flipped_bit_and_every_length)
{
    unsigned char bytes[41] = "a short text, and each of its bits", zeros[41] = {0};
    uint64_t good = checksum_hash64(0, bytes, sizeof bytes), of_zeros[sizeof zeros + 1];
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK(checksum_hash64(0, bytes, sizeof bytes) != good);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK(checksum_hash64(0, bytes, sizeof bytes) == good);
    CHECK(checksum_hash64(1, bytes, sizeof bytes) != good);
    for (size_t n = 0; n <= sizeof zeros; n++) {
        of_zeros[n] = checksum_hash64(0, zeros, n);
        for (size_t m = 0; m < n; m++) CHECK(of_zeros[n] != of_zeros[m]);
    }
}

TEST(checksum_of_pieces_depends_on_every_byte_but_not_on_threads_or_chunks)
{
    const size_t len = 70 * (size_t)CHECKSUM_PIECE + 12345, cut = 65 * (size_t)CHECKSUM_PIECE;
    char *x = heap(len);
    for (size_t i = 0; i < len; i++) x[i] = (char)(i * 31 + i / 977);
    uint32_t whole = checksum_pieces(0, x, len, 1);
    CHECK(checksum_pieces(0, x, len, 3) == whole);
    CHECK(checksum_pieces(checksum_pieces(0, x, cut, 2), x + cut, len - cut, 1) == whole);
    for (size_t at = 0; at < len; at += len / 37) {
        x[at] ^= 1;
        CHECK(checksum_pieces(0, x, len, 2) != whole);
        x[at] ^= 1;
    }
    CHECK(checksum_pieces(7, x, 0, 2) == 7);
    char *copy = heap(len + 1);
    for (int threads = 1; threads <= 3; threads++) {
        memset(copy, 0, len), copy[len] = 17;
        CHECK(checksum_copy_pieces(copy, x, len, threads) == whole);
        CHECK(!memcmp(copy, x, len) && copy[len] == 17);
    }
    CHECK(checksum_copy_pieces(copy, x, 0, 2) == 0);
    free(copy);
    free(x);
}
