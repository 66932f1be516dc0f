/* single_stage.h -- the whole model as one stage: forward, loss and backward of a microbatch
 * without a pipeline, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* Forward only: fills loss and best.  SHAPE: B or T below 1, or T above max_tokens. */
enum status single_stage_evaluate(const struct model *m, const struct microbatch *b,
                                  struct arena *step);
/* Forward and backward: accumulates the gradients of scale * sum(loss) into m->gradients, bit for
 * bit the same for every m->recompute.  SHAPE: as above. */
enum status single_stage_train(const struct model *m, const struct microbatch *b,
                               struct arena *step);
