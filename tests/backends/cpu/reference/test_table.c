// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "test.h"

TEST(reference_table_has_every_operation)
{
    CHECK(!ops_missing(&ops_cpu_reference));
#define OP(name, what, io) CHECK(ops_cpu_reference.name == reference_##name);
#include "ops/ops.def"
#undef OP
}
