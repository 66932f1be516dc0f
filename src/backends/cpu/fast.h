/* fast.h -- the kernels laid over the reference, and what they share.
 *
 * Order    Every sum is taken in pieces whose size does not depend on the number of threads, so
 *          results have the same bits on any number of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/ops.h"

#define OP(name, what, io)                                                                         \
    enum status fast_##name(const struct what *, const struct io *, struct queue *);
#include "ops/ops.def"
#undef OP
