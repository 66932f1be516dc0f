// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_append.h"

enum status kv_append(const struct ops *ops, const struct kv_append *a,
                      const struct kv_append_io *io, struct queue *queue)
{
    if (a->N < 1 || a->P < 1)
        FAIL(SHAPE, "kv_append: N %d, P %d: each must be at least 1", a->N, a->P);
    OP_RUN(kv_append);
}
