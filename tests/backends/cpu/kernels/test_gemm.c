// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_check.h"
#include "test.h"

TEST(gemms_match_f64_sums_for_all_transposes_and_thread_counts)
{
    for (int how = 0; how < 16; how++) {
        gemm_check_each_isa(
            gemm_shape_of(37, 70, 45, F32, how & 1, how & 2, how & 4, how & 8 ? 0.37f : 0));
    }
}

static struct gemm_shape f32_shape(int M, int N, int K, bool transpose_a, bool transpose_b,
                                   bool accumulate)
{
    struct gemm_shape s = gemm_shape_of(M, N, K, F32, transpose_a, transpose_b, accumulate, 0);
    s.dtype = F32;
    return s;
}

/* Longer than one slice of K, or than two. */
enum { LONG_K = TEST_SLOWED ? 33011 : 70011 };

TEST(f32_gemms_match_f64_sums_for_all_transposes_and_thread_counts)
{
    for (int how = 0; how < 8; how++) {
        gemm_check_each_isa(f32_shape(37, 70, 45, how & 1, how & 2, how & 4));
        gemm_check_each_isa(f32_shape(1, 1, 1, how & 1, how & 2, how & 4));
        gemm_check_each_isa(f32_shape(64, 96, 160, how & 1, how & 2, how & 4));
        gemm_check_each_isa(f32_shape(73, 49, 301, how & 1, how & 2, how & 4));
        gemm_check_each_isa(f32_shape(40, 290, 33, how & 1, how & 2, how & 4));
    }
    gemm_check_each_isa(f32_shape(34, 3, LONG_K, true, false, true)); /* several slices of K */
    gemm_check_each_isa(f32_shape(66, 3, 33011, false, true, true));  /* and A read in place */
    if (!TEST_SLOWED) gemm_check_each_isa(f32_shape(301, 529, 1103, true, false, true));
}

/* C is larger than the caches, so that it is stored with NT stores. */
TEST(f32_gemms_that_bypass_the_caches_are_complete)
{
    if (!TEST_SLOWED) gemm_check_each_isa(f32_shape(1057, 2048, 33, false, true, false));
}

TEST(gemms_with_long_k_and_many_blocks_are_complete)
{
    gemm_check_each_isa(gemm_shape_of(40, 33, 1900, F32, true, false, true, 0));
    gemm_check_each_isa(gemm_shape_of(600, 290, 70, BF16, false, true, false, 0.37f));
}

TEST(blocking_does_not_change_the_bits)
{
    if (!TEST_SLOWED) gemm_check_each_isa(gemm_shape_of(529, 301, 1103, F32, true, false, true, 0));
    gemm_check_each_isa(gemm_shape_of(301, 529, 390, BF16, false, true, true, 0.3f));
}

TEST(k_longer_than_one_slice_accumulates_over_slices)
{
    for (int how = 0; how < (TEST_SLOWED ? 1 : 2); how++) {
        gemm_check_each_isa(gemm_shape_of(34, 3, LONG_K, F32, true, false, how, how ? 0 : 0.37f));
        gemm_check_each_isa(gemm_shape_of(34, 3, LONG_K, BF16, false, false, how, how ? 0.37f : 0));
    }
}
