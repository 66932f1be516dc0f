/* megatron_dist.h -- reads Megatron-LM's checkpoints of --ckpt-format torch_dist: a directory of
 * torch.distributed.checkpoint with metadata.json and, before core 0.17, common.pt.
 *
 * Weights are the optimizer's float32 copies where it has them.  Moments are tensors of the model's
 * shapes, from optimizers that are not distributed and from the distributed one as
 * fully_reshardable and fully_sharded_model_space, or buckets (megatron_buckets.h).  The order of
 * parameters in buckets is checked: the float32 copies in them must be the model's weights. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_state.h"
#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"

bool megatron_dist_detect(const char *path);
/* Reads arguments and counters; release `m` even after a failure. */
enum status megatron_dist_read_state(const char *path, struct megatron_state *m);

/* Opens the model's tensors.  The arguments give the heads; without them, `shape` does.  Rows
 * beyond shape's vocabulary are dropped if they are Megatron-LM's padding.  MISSING: there is
 * neither.  DATA: a file is malformed, or a tensor does not belong to a Llama. */
enum status megatron_dist_open(struct tensor_slices *slices, const char *path,
                               const struct model_shape *shape);
/* Opens its optimizer's moments, possibly none, and sets the counters of `state`.  UNSUPPORTED:
 * they are stored in a form that is not read. */
enum status megatron_dist_open_moments(struct tensor_slices *slices, const char *path,
                                       const struct model_shape *shape, struct torch_state *state);
