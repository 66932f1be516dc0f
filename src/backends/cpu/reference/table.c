// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"

const struct ops ops_cpu_reference = {
    .backend = "cpu reference",
#define OP(name, what, io) .name = reference_##name,
#include "ops/ops.def"
#undef OP
};
