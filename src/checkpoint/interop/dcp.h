/* dcp.h -- reads torch.distributed.checkpoint (DCP) directories: .metadata, a pickle that maps
 * tensors to files, and __R_N.distcp, torch.save archives one after another.
 *
 * Tensors are stored as the shards (boxes with offsets) of the ranks that saved them.  Names (FQNs)
 * are those of any torchtitan generation, with or without the prefix "model.".
 * Memory   Reading maps the files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"

bool dcp_detect(const char *path);

/* Opens the model's tensors.  `shape` NULL: the heads are not known yet.  DATA: .metadata or an
 * archive is malformed, or a tensor does not belong to a Llama. */
enum status dcp_open(struct tensor_slices *slices, const char *path,
                     const struct model_shape *shape);
/* Opens its optimizer's moments, possibly none, and reads the training state.  Release `state` even
 * after a failure. */
enum status dcp_open_moments(struct tensor_slices *slices, const char *path,
                             const struct model_shape *shape, struct torch_state *state);
