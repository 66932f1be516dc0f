// SPDX-License-Identifier: Apache-2.0
#include "base/median.h"

#include "test.h"

TEST(median_of_an_even_count_is_the_mean_of_the_middle_two)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 9};
    CHECK(median(odd, 3) == 3 && median(even, 4) == 3.5 && median(odd, 1) == 1);
}
