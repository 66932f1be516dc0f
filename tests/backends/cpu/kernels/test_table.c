// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/cpu/sets.h"
#include "test.h"

TEST(every_set_has_every_operation_and_none_is_the_reference)
{
    for (int i = 0; cpu_set_at(i); i++) {
        const struct cpu_set *s = cpu_set_at(i);
        CHECK(!ops_missing(&s->ops) && strstr(s->ops.backend, s->name));
        /* an overlay that forgot a slot would compare a loop with itself in the operations' tests
         */
#define OP(name, what, io) CHECK(s->ops.name && s->ops.name != reference_##name);
#include "ops/ops.def"
#undef OP
    }
}
