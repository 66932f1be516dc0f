// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "plot/metric_label.h"

TEST(metric_label_has_unit_and_factor)
{
    double scale = 0;
    CHECK(!strcmp(metric_label("mfu", &scale), "model FLOPs utilization (%)") && scale == 100);
    CHECK(!strcmp(metric_label("piqa/acc", &scale), "piqa/acc") && scale == 1);
}
