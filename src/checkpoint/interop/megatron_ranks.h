/* megatron_ranks.h -- reads the weights of Megatron-LM's checkpoints of --ckpt-format torch:
 * mp_rank_TT or mp_rank_TT_PPP for each tensor- and pipeline-parallel rank, each with
 * model_optim_rng.pt.
 *
 * A rank's layers count from 0; with interleaved stages the file has model0, model1, and so on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_state.h"
#include "checkpoint/interop/tensor_slices.h"

/* `path`: an iter_N or release. */
bool megatron_ranks_detect(const char *path);
/* Reads arguments and counters, which every rank has. */
enum status megatron_ranks_read_state(const char *path, struct megatron_state *m);
/* Whether a rank has optimizer state, which is keyed by number and not read. */
enum status megatron_ranks_have_optimizer(const char *path, bool *has);
/* Opens the model's tensors; as megatron_dist_open.  MISSING also: a rank's file does not exist.
 * UNSUPPORTED: stages with different numbers of layers. */
enum status megatron_ranks_open(struct tensor_slices *slices, const char *path,
                                const struct model_shape *shape);
