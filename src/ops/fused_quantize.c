// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_quantize.h"

enum status fused_amax(const struct ops *ops, const struct fused_amax *a,
                       const struct fused_amax_io *io, struct queue *queue)
{
    if (a->N < 1 || a->C < 1)
        FAIL(SHAPE, "fused_amax: N %d, C %d: each must be at least 1", a->N, a->C);
    BUG_IF(a->of == FUSED_FP8);
    OP_RUN(fused_amax);
}

enum status fused_quantize(const struct ops *ops, const struct fused_quantize *a,
                           const struct fused_quantize_io *io, struct queue *queue)
{
    if (a->N < 1 || a->C < 1)
        FAIL(SHAPE, "fused_quantize: N %d, C %d: each must be at least 1", a->N, a->C);
    OP_RUN(fused_quantize);
}
