// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/cpu/isa.h"
#include "test.h"

TEST(every_isa_has_its_own_kernel_for_every_operation)
{
    for (int i = 0; isa_at(i); i++) {
        const struct isa *s = isa_at(i);
        CHECK(!ops_missing(&s->ops) && strstr(s->ops.backend, s->name));
        /* otherwise the op tests would compare a reference loop with itself */
#define OP(name, what, io) CHECK(s->ops.name && s->ops.name != reference_##name);
#include "ops/ops.def"
#undef OP
    }
}
