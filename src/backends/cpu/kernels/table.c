// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/kernels.h"

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

const struct isa KERNEL(isa) = {
    .name = TEXT(CPU_ISA),
    .ops =
        {
            .backend = "cpu " TEXT(CPU_ISA),
            .attention_can_pack = KERNEL(attention_can_pack),
#define OP(name, what, io) .name = KERNEL(name),
#include "ops/ops.def"
#undef OP
        },
    .burst = KERNEL(burst),
    .microkernel_bench = KERNEL(microkernel_bench),
};
