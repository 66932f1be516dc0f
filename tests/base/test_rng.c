// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rng.h"

/* Known answers published with Random123 for philox4x32-10. */
TEST(philox_matches_published_bits)
{
    struct rng_block zero = rng_philox(0, 0, 0, 0, 0);
    CHECK(zero.bits[0] == 0x6627e8d5 && zero.bits[1] == 0xe169c58d);
    CHECK(zero.bits[2] == 0xbc57ac4c && zero.bits[3] == 0x9b00dbd8);
    struct rng_block ones = rng_philox(UINT64_MAX, ~0u, ~0u, ~0u, ~0u);
    CHECK(ones.bits[0] == 0x408f276d && ones.bits[1] == 0x41c83b0e);
    CHECK(ones.bits[2] == 0xa20bc7c6 && ones.bits[3] == 0x6d5451fd);
}

TEST(rng_draws_have_the_expected_mean_and_variance)
{
    double sum = 0, squares = 0, uniform = 0;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++) {
        double x = rng_normal(1, RNG_TEST, 0, i), u = rng_uniform(1, RNG_TEST, 1, i);
        sum += x, squares += x * x, uniform += u;
        CHECK(u >= 0 && u < 1);
        CHECK(rng_below(7, 1, RNG_TEST, 2, i) < 7);
    }
    CHECK_NEAR(sum / N, 0, 0.01);
    CHECK_NEAR(squares / N, 1, 0.01);
    CHECK_NEAR(uniform / N, 0.5, 0.01);
}

/* The first outputs of SplitMix64 from state 0. */
TEST(rng_mix_is_splitmix64)
{
    CHECK(rng_mix(0) == 0xE220A8397B1DCDAFu);
    CHECK(rng_mix(0x9E3779B97F4A7C15u) == 0x6E789E6AA1B965F4u);
}
