// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/vector.h"
#include "test.h"

TEST(exponentials_meet_their_error_bounds_and_are_one_at_zero)
{
    double worst = 0, worst_fast = 0;
    for (int i = -86000; i <= 87000; i++) {
        float x = (float)i * 1e-3f;
        double want = exp((double)x);
        worst = fmax(worst, fabs((double)vector_exp(x) - want) / want);
        worst_fast = fmax(worst_fast, fabs((double)vector_fast_exp(x) - want) / want);
    }
    CHECK(worst < 3e-7 && worst_fast < 1e-5);
    CHECK(worst_fast > worst); /* otherwise the fast one would be pointless */
    CHECK(vector_exp(0) == 1 && vector_fast_exp(0) == 1);
}

TEST(exponentials_saturate_and_propagate_nan)
{
    float (*const each[])(float) = {vector_exp, vector_fast_exp};
    for (int i = 0; i < 2; i++) {
        CHECK(each[i](-INFINITY) == 0 && each[i](-88) == 0 && each[i](-1e30f) == 0);
        CHECK(each[i](1e30f) > 1e38f && isfinite(each[i](1e30f)));
        CHECK(isnan(each[i](NAN)));
    }
}

TEST(nt_stores_write_the_line)
{
    bf16 to[64] __attribute__((aligned(64))) = {0};
    float from[32];
    for (int i = 0; i < 32; i++) from[i] = 0.37f * (float)(i - 16);
    CHECK(vector_is_aligned(to + 32) && !vector_is_aligned(to + 1));
    vector_stream_bf16(to + 32, from);
    vector_stream_fence();
    for (int i = 0; i < 32; i++) CHECK(!to[i] && to[32 + i] == bf16_from_f32(from[i]));
}

static double relative_error(double x, double want) { return fabs(x - want) / want; }

TEST(simd_exponentials_meet_the_same_error_bounds)
{
    double worst = 0, worst_fast = 0, worst_sigmoid = 0;
    for (int i = -86000; i <= 87000; i += LANES) {
        vector x, y[3];
        for (int k = 0; k < LANES; k++) x[k] = (float)(i + k) * 1e-3f;
        y[0] = vector_exps(F32, x), y[1] = vector_exps(BF16, x), y[2] = vector_sigmoid(BF16, x);
        for (int k = 0; k < LANES; k++) {
            double want = exp((double)x[k]);
            worst = fmax(worst, relative_error((double)y[0][k], want));
            worst_fast = fmax(worst_fast, relative_error((double)y[1][k], want));
            worst_sigmoid = fmax(worst_sigmoid, relative_error((double)y[2][k], want / (1 + want)));
        }
    }
    CHECK(worst < 3e-7 && worst_fast < 1e-5 && worst_sigmoid < 1e-5);
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        CHECK(vector_exps(dtype, vector_broadcast(0))[0] == 1);
        CHECK(vector_exps(dtype, vector_broadcast(-INFINITY))[LANES - 1] == 0);
        CHECK(vector_exps(dtype, vector_broadcast(-1e30f))[1] == 0);
        CHECK(vector_exps(dtype, vector_broadcast(1e30f))[1] > 1e38f);
        CHECK(isnan(vector_exps(dtype, vector_broadcast(NAN))[0]));
        CHECK(vector_sigmoid(dtype, vector_broadcast(-1e30f))[0] < 1e-30f);
        CHECK(vector_sigmoid(dtype, vector_broadcast(1e30f))[0] == 1);
        CHECK(isnan(vector_sigmoid(dtype, vector_broadcast(NAN))[0]));
    }
}

TEST(partial_loads_and_stores_leave_other_elements_alone)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (size_t n = 0; n <= LANES; n++) {
            enum dtype dtype = (enum dtype)d;
            float from[LANES + 1], to[LANES + 1], wide[2 * LANES + 2] = {0};
            for (int i = 0; i <= LANES; i++) from[i] = 1.5f * (float)(i + 1);
            vector_store(wide, 1, dtype, LANES + 1, from);
            vector x = vector_get(wide, 1, dtype, n);
            for (size_t i = 0; i < LANES; i++) CHECK(x[i] == (i < n ? from[i] : 0));
            vector_set(wide, 1, dtype, n, x + x);
            vector_load(wide, 1, dtype, LANES + 1, to);
            for (size_t i = 0; i <= LANES; i++) CHECK(to[i] == (i < n ? 2 : 1) * from[i]);
        }
}

TEST(two_register_loads_round_trip_in_order)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        enum { ALL = 2 * LANES + 2 };
        float x[ALL], from[ALL], to[ALL], sum = 0;
        for (int i = 0; i < ALL; i++) sum += from[i] = (float)(i + 1);
        vector_store(x, 0, dtype, ALL, from);
        struct vectors two = vector_get_two(x, 1, dtype);
        CHECK(vector_reduce_sum(two.a) + vector_reduce_sum(two.b) == sum - from[0] - from[ALL - 1]);
        two.a += 1.0f, two.b += 1.0f;
        vector_set_two(x, 1, dtype, two);
        vector_load(x, 0, dtype, ALL, to);
        for (int i = 0; i < ALL; i++) CHECK(to[i] == from[i] + (i > 0 && i < ALL - 1 ? 1 : 0));
    }
}

TEST(simd_rounding_matches_scalar_rounding)
{
    const float all[] = {1, -1.00390625f, 1.01171875f, 3.4e38f, INFINITY, -INFINITY,
                         0, -0.0f,        1e-30f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK(vector_to_bf16(vector_broadcast(all[i]))[LANES - 1] == bf16_from_f32(all[i]));
        CHECK(vector_round_to(BF16, vector_broadcast(all[i]))[0] ==
              bf16_to_f32(bf16_from_f32(all[i])));
    }
    CHECK(isnan(bf16_to_f32(vector_to_bf16(vector_broadcast(NAN))[0])));
    CHECK(vector_reduce_sum((vector){1, 2, 4, 8}) == 15 &&
          vector_reduce_max((vector){1, 2, 4, 8}) == 8);
}
