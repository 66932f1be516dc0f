/* dcp.h -- directories of torch.distributed.checkpoint: .metadata, a pickle of what is where, and
 * __R_N.distcp, one archive of torch.save behind the other.
 *
 * Every tensor lies there in boxes, as the ranks that saved it had it.  Names are torchtitan's of
 * every generation, below "model." or not.
 * Memory   Reading maps the files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"

bool dcp_detect(const char *path);

/* The model's tensors.  `shape`: which model's; NULL: heads are not known yet.  DATA: what is wrong
 * with .metadata or an archive; a tensor that no Llama has. */
enum status dcp_open(struct tensor_slices *p, const char *path, const struct model_shape *shape);
/* The moments of its optimizer, maybe none; and with them where the run was.  After a failure, too,
 * release the state. */
enum status dcp_open_moments(struct tensor_slices *p, const char *path,
                             const struct model_shape *shape, struct torch_state *state);
