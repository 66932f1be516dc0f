// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.h"

enum status cross_entropy(const struct ops *ops, const struct cross_entropy *a,
                          const struct cross_entropy_io *io, struct queue *on)
{
    if (a->N < 1 || a->V < 1)
        FAIL(SHAPE, "cross_entropy: N %d, V %d: each must be at least 1", a->N, a->V);
    OP_RUN(cross_entropy);
}
