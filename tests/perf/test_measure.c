// SPDX-License-Identifier: Apache-2.0
#include "perf/measure.h"

#include "test.h"

TEST(the_median_is_in_the_middle_or_between_two)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 9};
    CHECK(median(odd, 3) == 3 && median(even, 4) == 3.5 && median(odd, 1) == 1);
}

TEST(ceilings_have_names_and_words)
{
    CHECK(!strcmp(ceiling_name(CEILING_panel_l2), "panel_l2"));
    CHECK(!strcmp(ceiling_text(CEILING_f32), "float32 in registers"));
}
