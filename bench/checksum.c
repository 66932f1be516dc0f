/* checksum.c -- gigabytes per second that one core sums with CRC-32C: pieces of a staged state
 * (CHECKSUM_PIECE), for which the CPU's instruction runs in three streams; the same bytes in chunks
 * that are too short for that; and with portable C.  Ratios are medians over the runs.
 *
 *     bench/checksum */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    RUNS = 9,
    REPEATS = 256,
    SHORT_CHUNK = 3 * 1024 - 8, /* a word less than the shortest piece in three streams */
};

typedef uint32_t checksum_function(uint32_t crc, const void *bytes, size_t len);

static double gigabytes_per_second(checksum_function *f, const char *x, size_t chunk, int repeats)
{
    volatile uint32_t crc = 0;
    double begin_s = clock_monotonic_s();
    for (int i = 0; i < repeats; i++)
        for (size_t at = 0; at < CHECKSUM_PIECE; at += chunk) {
            size_t left = CHECKSUM_PIECE - at;
            crc = f(crc, x + at, left < chunk ? left : chunk);
        }
    return repeats * (double)CHECKSUM_PIECE / 1e9 / (clock_monotonic_s() - begin_s);
}

int main(void)
{
    char *x = heap(CHECKSUM_PIECE);
    double whole[RUNS], over_chunks[RUNS], over_portable[RUNS];
    for (size_t i = 0; i < CHECKSUM_PIECE; i++) x[i] = (char)(i * 31 + i / 977);
    for (int run = 0; run < RUNS; run++) {
        whole[run] = gigabytes_per_second(checksum_crc32c, x, CHECKSUM_PIECE, REPEATS);
        over_chunks[run] =
            whole[run] / gigabytes_per_second(checksum_crc32c, x, SHORT_CHUNK, REPEATS);
        over_portable[run] = whole[run] / gigabytes_per_second(checksum_crc32c_portable, x,
                                                               CHECKSUM_PIECE, REPEATS / 16);
    }
    free(x);
    printf("CRC-32C of %d KiB in the cache: %.1f GB/s, %.2f x one stream, %.1f x portable C\n",
           CHECKSUM_PIECE >> 10, median(whole, RUNS), median(over_chunks, RUNS),
           median(over_portable, RUNS));
    return 0;
}
