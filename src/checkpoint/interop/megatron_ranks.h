/* megatron_ranks.h -- reads Megatron-LM's checkpoints of --ckpt-format torch: mp_rank_TT or
 * mp_rank_TT_PPP for each tensor- and pipeline-parallel rank, each with model_optim_rng.pt, which
 * has the optimizer's state, too (megatron_groups.h), unless that is distributed: then it is in
 * distrib_optim.pt.  Weights are the optimizer's float32 copies, else the model's.
 *
 * A rank's layers count from 0; with interleaved stages the file has model0, model1, and so on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_state.h"
#include "checkpoint/interop/tensor_slices.h"

/* `path`: an iter_N or release. */
bool megatron_ranks_detect(const char *path);
/* Reads arguments and counters, which every rank has; release `m` even after a failure. */
enum status megatron_ranks_read_state(const char *path, struct megatron_state *m);
/* Opens the model's tensors; as megatron_dist_open.  MISSING also: a rank's file does not exist.
 * UNSUPPORTED: stages with different numbers of layers. */
enum status megatron_ranks_open(struct tensor_slices *slices, const char *path,
                                const struct model_shape *shape);
/* Opens the optimizer's moments, possibly none, and sets the counters of `state`.  UNSUPPORTED:
 * they do not have the shapes and the order that are expected, in which the float32 copies, if any,
 * are the model's weights. */
enum status megatron_ranks_open_moments(struct tensor_slices *slices, const char *path,
                                        const struct model_shape *shape, struct torch_state *state);
