// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/products.h"
#include "test.h"

TEST(products_of_whole_panels_are_put_line_by_line)
{
    for (int how = 0; how < 16; how++)
        for (int size = 0; size < 2; size++)
            products_check_each_set((struct product_shape){
                size ? 64 : 128, size ? 96 : 32, how & 1 ? 1376 : 96, BF16, how & 8 ? F32 : BF16,
                how & 8, !(how & 8) && how & 2, how & 4, false, 0});
}
