// SPDX-License-Identifier: Apache-2.0
#include "perf/cpu_bench.h"

#include "test.h"

TEST(cpu_bench_ceilings_have_names_and_descriptions)
{
    CHECK(!strcmp(cpu_bench_ceiling_name(CEILING_panel_l2), "panel_l2"));
    CHECK(!strcmp(cpu_bench_ceiling_text(CEILING_f32), "float32 in registers"));
}
