// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/sets.h"

#include "backends/cpu/cpu.h"
#include "test.h"

TEST(auto_selects_the_best_supported_isa)
{
    const struct cpu_set *best = cpu_set_best();
    const struct ops *ops;
    CHECK(best && cpu_set_runs(best));
    CHECK_STATUS(OK, cpu_ops_find("auto", &ops));
    CHECK(ops == &best->ops);
    bool after = false;
    for (int i = 0; cpu_set_at(i); i++) {
        CHECK(!after || !cpu_set_runs(cpu_set_at(i)));
        after |= cpu_set_at(i) == best;
    }
    CHECK(after);
}

TEST(isa_is_found_by_name_or_rejected_with_the_best_supported_one)
{
    const struct ops *ops;
    CHECK_STATUS(OK, cpu_ops_find("reference", &ops));
    CHECK(ops == &ops_cpu_reference);
    for (int i = 0; cpu_set_at(i); i++) {
        const struct cpu_set *s = cpu_set_at(i);
        if (cpu_set_runs(s)) {
            CHECK_STATUS(OK, cpu_ops_find(s->name, &ops));
            CHECK(ops == &s->ops);
        } else {
            CHECK_STATUS(UNSUPPORTED, cpu_ops_find(s->name, &ops));
            CHECK_MESSAGE(cpu_set_best()->name);
        }
    }
    CHECK_STATUS(UNSUPPORTED, cpu_ops_find("sse9", &ops));
    CHECK_MESSAGE("unknown, or not in this build");
}
