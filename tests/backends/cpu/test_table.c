// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "test.h"

TEST(every_operation_has_a_fast_kernel_that_is_not_the_reference)
{
    const struct ops *fast = cpu_ops();
    CHECK(!ops_missing(fast) && !strcmp(fast->backend, "cpu"));
    /* an overlay that forgot a slot would compare a loop with itself in the operations' tests */
    CHECK(fast->linear_forward != ops_cpu_reference.linear_forward);
#define OP(name, what, io) CHECK(fast->name && fast->name != reference_##name);
#include "ops/ops.def"
#undef OP
}
