// SPDX-License-Identifier: Apache-2.0
#include "data/numpy.h"

#include "test.h"

/* numpy 2.4.6: x = arange(n, dtype=uint32); RandomState(seed).shuffle(x) */
TEST(numpy_shuffle_matches_random_state)
{
    static const uint32_t want[10] = {7, 2, 9, 1, 0, 8, 4, 5, 6, 3};
    uint32_t x[10];
    struct numpy_random random;
    for (uint32_t i = 0; i < 10; i++) x[i] = i;
    numpy_random_init(&random, 1234);
    numpy_shuffle(&random, x, 10);
    CHECK(!memcmp(x, want, sizeof want));
}

TEST(numpy_shuffle_keeps_its_state_between_arrays)
{
    /* 2000 values need the state refilled; sums of i * x[i] after the first and second shuffle */
    static const struct {
        uint32_t seed;
        uint64_t first, second;
    } cases[] = {{0u, 2001039964, 2002364853},
                 {1234u, 2010819158, 2003858852},
                 {4294967295u, 2009436410, 2018970181}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct numpy_random random;
        numpy_random_init(&random, cases[c].seed);
        for (int round = 0; round < 2; round++) {
            uint32_t x[2000];
            uint64_t sum = 0;
            for (uint32_t i = 0; i < 2000; i++) x[i] = i;
            numpy_shuffle(&random, x, 2000);
            for (uint32_t i = 0; i < 2000; i++) sum += (uint64_t)i * x[i];
            CHECK(sum == (round ? cases[c].second : cases[c].first));
        }
    }
}

TEST(numpy_shuffle_draws_nothing_for_fewer_than_two_values)
{
    struct numpy_random random;
    uint32_t one = 5;
    numpy_random_init(&random, 1);
    int used = random.used;
    numpy_shuffle(&random, &one, 1);
    numpy_shuffle(&random, NULL, 0);
    CHECK(one == 5 && random.used == used);
}

TEST(numpy_mock_lengths_match_default_rng)
{
    static const int32_t want[10] = {3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331};
    int32_t *lengths = calloc(100000, sizeof *lengths);
    int64_t sum = 0;
    CHECK(lengths);
    numpy_mock_lengths(lengths, 100000);
    CHECK(!memcmp(lengths, want, sizeof want));
    for (int i = 0; i < 100000; i++) sum += lengths[i];
    CHECK(sum == 204637097);
    free(lengths);
}

/* numpy 2.4.6: sum(1 / (i + 1) for i < n) as float.hex of numpy.sum */
TEST(numpy_sum_adds_in_numpy_order)
{
    static const struct {
        size_t count;
        double want;
    } cases[] = {{0, 0x0.0p+0},
                 {1, 0x1.0000000000000p+0},
                 {3, 0x1.d555555555555p+0},
                 {7, 0x1.4be2be2be2be2p+1},
                 {8, 0x1.5be2be2be2be2p+1},
                 {9, 0x1.6a1ba1ba1ba1bp+1},
                 {17, 0x1.b84341cecee4cp+1},
                 {128, 0x1.5bb8ae9541ca7p+2},
                 {129, 0x1.5c37b09149ba9p+2},
                 {300, 0x1.92172a3e6965ap+2},
                 {1000, 0x1.df11f45f4e61ap+2}};
    double values[1000];
    for (int i = 0; i < 1000; i++) values[i] = 1.0 / (i + 1);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double sum = numpy_sum(values, cases[c].count);
        CHECK(!memcmp(&sum, &cases[c].want, sizeof sum));
    }
}
