// SPDX-License-Identifier: Apache-2.0
#include "machine/bandwidth.h"

#include "test.h"

enum { BYTES = 1 << 20 };

static unsigned char *memory(void)
{
    unsigned char *m = heap(BYTES + 128);
    for (size_t i = 0; i < BYTES; i++) m[i] = (unsigned char)(i * 7 % 251);
    memset(m + BYTES, 0xEE, 128); /* guard: must not be written */
    return m;
}

static bool is_untouched_behind(const unsigned char *m)
{
    for (size_t i = 0; i < 128; i++)
        if (m[BYTES + i] != 0xEE) return false;
    return true;
}

TEST(bandwidth_kernels_read_write_copy_and_update_with_any_number_of_threads)
{
    for (int threads = 1; threads <= 3; threads++) {
        unsigned char *m = memory();
        CHECK(bandwidth_measure(BANDWIDTH_read, m, BYTES, threads) > 0);
        for (size_t i = 0; i < BYTES; i++) CHECK(m[i] == i * 7 % 251);
        CHECK(bandwidth_measure(BANDWIDTH_update, m, BYTES, threads) > 0);
        for (size_t i = 0; i < BYTES; i++) CHECK(m[i] == (i * 7 % 251 ^ (i % 8 == 0)));
        CHECK(bandwidth_measure(BANDWIDTH_copy, m, BYTES, threads) > 0);
        CHECK(memcmp(m, m + BYTES / 2, BYTES / 2) == 0);
        CHECK(m[1] == 7);
        CHECK(bandwidth_measure(BANDWIDTH_write, m, BYTES, threads) > 0);
        for (size_t i = 0; i < BYTES; i++) CHECK(m[i] == m[0]);
        CHECK(is_untouched_behind(m));
        free(m);
    }
}

TEST(bandwidth_kernels_with_more_threads_than_cache_lines_leave_some_idle)
{
    unsigned char *m = memory();
    CHECK(bandwidth_measure(BANDWIDTH_write, m, 128, 5) > 0);
    CHECK(m[127] == m[0] && m[128] == 128 * 7 % 251);
    CHECK(bandwidth_measure_best(BANDWIDTH_read, m, 128, 5, 2) > 0);
    free(m);
}

TEST(bandwidth_kernels_have_names)
{
    CHECK(!strcmp(bandwidth_name(BANDWIDTH_read), "read"));
    CHECK(!strcmp(bandwidth_name(BANDWIDTH_update), "update"));
}
