// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/cpu/peak.h"

TEST(the_peak_is_measured_for_either_dtype)
{
    struct queue one = {.num_threads = 1};
    double f32 = cpu_peak_flops(&one, F32), half = cpu_peak_flops(&one, BF16);
    print_message("  one thread: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n", f32 / 1e9, half / 1e9);
    CHECK(f32 > 1e8 && f32 < 1e13);
    CHECK(half > 1e8 && half < 1e14);
}
