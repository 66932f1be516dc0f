// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate_gradients.h"

enum status accumulate_gradients(const struct ops *ops, const struct accumulate_gradients *a,
                                 const struct accumulate_gradients_io *io, struct queue *queue)
{
    if (a->index >= ACCUMULATE_GRADIENTS_MAX)
        FAIL(SHAPE,
             "training.gradient_dtype = \"bfloat16\" allows at most %d microbatches in a step",
             ACCUMULATE_GRADIENTS_MAX);
    OP_RUN(accumulate_gradients);
}
