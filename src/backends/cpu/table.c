// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "backends/cpu/fast.h"

static const struct ops fast = {
    .backend = "cpu",
#define OP(name, what, io) .name = fast_##name,
#include "ops/ops.def"
#undef OP
};

const struct ops *cpu_ops(void) { return &fast; }
