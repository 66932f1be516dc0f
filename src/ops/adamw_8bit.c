// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw_8bit.h"

enum status adamw_8bit(const struct ops *ops, const struct adamw_8bit *a,
                       const struct adamw_8bit_io *io, struct queue *queue)
{
    const struct adamw *s = &a->adamw;
    if (s->step < 1) FAIL(SHAPE, "adamw_8bit: step %lld: must be at least 1", (long long)s->step);
    if (s->split && s->copy_dtype != BF16)
        FAIL(SHAPE, "adamw_8bit: split weights need a copy in bfloat16, not %s",
             dtype_name(s->copy_dtype));
    OP_RUN(adamw_8bit);
}
