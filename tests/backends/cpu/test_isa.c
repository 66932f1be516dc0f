// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"

#include "backends/cpu/cpu.h"
#include "test.h"

TEST(auto_selects_the_best_supported_isa)
{
    const struct isa *best = isa_best();
    const struct ops *ops;
    CHECK(best && isa_is_supported(best));
    CHECK_STATUS(OK, cpu_ops_find("auto", &ops));
    CHECK(ops == &best->ops);
    bool after = false;
    for (int i = 0; isa_at(i); i++) {
        CHECK(!after || !isa_is_supported(isa_at(i)));
        after |= isa_at(i) == best;
    }
    CHECK(after);
}

TEST(isa_is_found_by_name_or_rejected_with_the_best_supported_one)
{
    const struct ops *ops;
    CHECK_STATUS(OK, cpu_ops_find("reference", &ops));
    CHECK(ops == &ops_cpu_reference);
    for (int i = 0; isa_at(i); i++) {
        const struct isa *s = isa_at(i);
        if (isa_is_supported(s)) {
            CHECK_STATUS(OK, cpu_ops_find(s->name, &ops));
            CHECK(ops == &s->ops);
        } else {
            CHECK_STATUS(UNSUPPORTED, cpu_ops_find(s->name, &ops));
            CHECK_MESSAGE(isa_best()->name);
        }
    }
    CHECK_STATUS(UNSUPPORTED, cpu_ops_find("sse9", &ops));
    CHECK_MESSAGE("unknown, or not in this build");
}
