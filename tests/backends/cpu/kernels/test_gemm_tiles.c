// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_check.h"
#include "test.h"

TEST(gemms_of_full_panels_use_nt_stores)
{
    for (int how = 0; how < 16; how++)
        for (int size = 0; size < 2; size++)
            gemm_check_each_isa(gemm_shape_of(
                size ? 64 : 128, size ? 96 : 32, how & 1 ? (TEST_SLOWED ? 160 : 1376) : 96,
                how & 8 ? F32 : BF16, how & 8, !(how & 8) && how & 2, how & 4, 0));
}

TEST(gemms_of_paneled_operands_have_the_same_bits)
{
    static const int sizes[][3] = {{64, 32, 96}, {32, 96, 1024}, {352, 64, 1376}, {320, 288, 992}};
    for (size_t i = 0; i < (TEST_SLOWED ? 1 : sizeof sizes / sizeof *sizes); i++)
        for (int how = 0; how < 16; how++)
            gemm_check_paneled(gemm_shape_of(sizes[i][0], sizes[i][1], sizes[i][2],
                                             how & 8 ? F32 : BF16, how & 1, how & 2, how & 4,
                                             how == 5 ? 2 : 0));
}
