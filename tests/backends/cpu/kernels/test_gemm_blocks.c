// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"
#include "base/arena.h"
#include "test.h"

TEST(micro_kernel_benchmark_of_each_isa_counts_its_flops)
{
    enum { BYTES = 1 << 18 };
    struct arena panels;
    CHECK_STATUS(OK, arena_init(&panels, BYTES, NULL));
    for (int i = 0; isa_at(i); i++) {
        const struct isa *s = isa_at(i);
        if (!isa_is_supported(s)) continue;
        double once = s->microkernel_bench(panels.base, BYTES, 1);
        CHECK(s->microkernel_bench(panels.base, BYTES, 3) == 3 * once);
        /* each byte of bf16 or f32 takes part in 32 multiply-adds: 32 or 16 FLOPs, or 64 and more
         * where one panel is reused for all others */
        CHECK(once >= 0.5 * BYTES * 8 && once <= BYTES * 32.0);
        CHECK(s->microkernel_bench(panels.base, 8 << 10, 1) >= 2 * 32 * 32 * 32);
    }
    arena_release(&panels);
}
