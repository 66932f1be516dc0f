/* unit.h -- opening and closing FSDP units, and the weights and gradients of open ones.
 *
 * Before the model uses a unit it opens it, afterwards it closes it.  On one rank that only
 * computes addresses; under FSDP opening waits for the unit's all-gather (unshard), and closing
 * lets it go (reshard) and starts the reduce-scatter of its gradients.
 *
 * A tensor is named by (id, layer); layer is -1 outside blocks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* The unit with that tensor; `use` is of enum unit_use. */
enum status unit_open(const struct model *m, enum param_id id, int layer, unsigned use);
enum status unit_close(const struct model *m, enum param_id id, int layer, unsigned use);

/* A tensor of an open unit; the gradient only if it was opened with USE_GRADIENTS. */
const void *unit_weight(const struct model *m, enum param_id id, int layer);
float *unit_gradient(const struct model *m, enum param_id id, int layer);

/* Where the FP8 copies of the weight are kept, in `*y`, and which are current; NULL: they are not
 * kept. */
struct float8_weights *unit_float8_weight(const struct model *m, enum param_id id, int layer,
                                          bf16 **y);

/* Whether a GEMM overwrites the gradient of a weight instead of accumulating into it: in the first
 * microbatch of gradient accumulation, which thus needs no zero_grad of matrices. */
bool unit_overwrites_gradients(const struct model *m, enum param_id id, int layer);
/* zero_grad of one tensor. */
enum status unit_zero_gradient(const struct model *m, enum param_id id, int layer);
