/* isa.h -- the instruction set architectures (ISAs) that this program has kernels for.
 *
 * One binary runs on every processor of its architecture: the Makefile compiles kernels/ once per
 * ISA, and run-time dispatch picks the best one that the processor supports. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>

struct isa {
    const char *name;
    struct ops ops;
    double (*burst)(enum dtype dtype, long rounds); /* these two: see kernels.h */
    double (*microkernel_bench)(const void *panels, size_t bytes, long rounds);
};

/* ISA i, weakest first; NULL past the last. */
const struct isa *isa_at(int i);
/* Whether the processor and the operating system support the ISA. */
bool isa_is_supported(const struct isa *s);
/* The best supported ISA; NULL if none is. */
const struct isa *isa_best(void);
/* The ISA of these operations; of others, such as the reference, the best supported one. */
const struct isa *isa_of_ops(const struct ops *ops);
