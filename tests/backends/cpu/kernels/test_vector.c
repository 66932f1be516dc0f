// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/vector.h"
#include "test.h"

TEST(exponentials_are_within_what_they_promise_and_one_at_zero)
{
    double worst = 0, worst_quick = 0;
    for (int i = -86000; i <= 87000; i++) {
        float x = (float)i * 1e-3f;
        double want = exp((double)x);
        worst = fmax(worst, fabs((double)vector_exp(x) - want) / want);
        worst_quick = fmax(worst_quick, fabs((double)quick_exp(x) - want) / want);
    }
    CHECK(worst < 3e-7 && worst_quick < 1e-5);
    CHECK(worst_quick > worst); /* or the quick one has no purpose */
    CHECK(vector_exp(0) == 1 && quick_exp(0) == 1);
}

TEST(exponentials_end_at_zero_and_let_nan_pass)
{
    float (*const each[])(float) = {vector_exp, quick_exp};
    for (int i = 0; i < 2; i++) {
        CHECK(each[i](-INFINITY) == 0 && each[i](-88) == 0 && each[i](-1e30f) == 0);
        CHECK(each[i](1e30f) > 1e38f && isfinite(each[i](1e30f)));
        CHECK(isnan(each[i](NAN)));
    }
}

TEST(streamed_lines_hold_what_was_stored)
{
    bf16 to[64] __attribute__((aligned(64))) = {0};
    float from[32];
    for (int i = 0; i < 32; i++) from[i] = 0.37f * (float)(i - 16);
    CHECK(vector_is_line(to + 32) && !vector_is_line(to + 1));
    vector_stream(to + 32, from);
    vector_stream_end();
    for (int i = 0; i < 32; i++) CHECK(!to[i] && to[32 + i] == bf16_from_f32(from[i]));
}
