// SPDX-License-Identifier: Apache-2.0
#include "machine/peak.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/isa.h"

#include "test.h"

TEST(peak_is_measured_for_both_dtypes)
{
    double f32 = peak_measure_flops(NULL, 1, F32), bf16_rate = peak_measure_flops(NULL, 1, BF16);
    print_message("  one thread: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n", f32 / 1e9,
                  bf16_rate / 1e9);
    CHECK(f32 > 1e8 && f32 < 1e13);
    CHECK(bf16_rate > 1e8 && bf16_rate < 1e14);
}

TEST(burst_uses_the_faster_dtype_and_repeats)
{
    struct peak_burst f32 = peak_burst_make(NULL, 1, F32, 1e-4);
    struct peak_burst best = peak_burst_make(NULL, 1, BF16, 1e-4);
    CHECK(f32.dtype == F32 && f32.rounds > 0 && best.rounds > 0);
    CHECK(f32.isa && f32.isa == best.isa && f32.num_threads == 1);
    CHECK(peak_burst_run(&f32) > 1e7 && peak_burst_run(&best) > 1e7);
}

TEST(burst_uses_the_isa_of_the_operations)
{
    for (int i = 0; isa_at(i); i++)
        if (isa_is_supported(isa_at(i)))
            CHECK(peak_burst_make(&isa_at(i)->ops, 1, F32, 1e-4).isa == isa_at(i));
    CHECK(peak_burst_make(&ops_cpu_reference, 1, F32, 1e-4).isa == isa_best());
}

TEST(micro_kernel_is_measured_from_l1_and_l2)
{
    double first, second;
    CHECK(peak_cache_bytes(1) >= 8 << 10 && peak_cache_bytes(2) >= peak_cache_bytes(1));
    CHECK_STATUS(OK, peak_measure_micro_kernel(NULL, 2, peak_cache_bytes(1) / 4 * 3, &first));
    CHECK_STATUS(OK, peak_measure_micro_kernel(NULL, 2, peak_cache_bytes(2) / 2, &second));
    CHECK(first > 1e8 && second > 1e8);
    CHECK_STATUS(MEMORY, peak_measure_micro_kernel(NULL, 2, (size_t)-1 / 64 * 64, &first));
}
