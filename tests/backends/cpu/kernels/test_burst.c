// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"
#include "test.h"

TEST(burst_of_each_isa_counts_its_flops)
{
    for (int i = 0; isa_at(i); i++) {
        const struct isa *s = isa_at(i);
        if (!isa_is_supported(s)) continue;
        for (int d = 0; d < DTYPE_COUNT; d++) {
            double once = s->burst((enum dtype)d, 1);
            CHECK(once >= 2 && s->burst((enum dtype)d, 10) == 10 * once);
        }
    }
}
