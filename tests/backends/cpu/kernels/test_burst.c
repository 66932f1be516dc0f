// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/sets.h"
#include "test.h"

TEST(burst_of_each_isa_counts_its_flops)
{
    for (int i = 0; cpu_set_at(i); i++) {
        const struct cpu_set *s = cpu_set_at(i);
        if (!cpu_set_runs(s)) continue;
        for (int d = 0; d < DTYPE_COUNT; d++) {
            double once = s->burst((enum dtype)d, 1);
            CHECK(once >= 2 && s->burst((enum dtype)d, 10) == 10 * once);
        }
    }
}
