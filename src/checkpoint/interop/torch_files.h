/* torch_files.h -- a model in torch files of any kind: Meta's (meta.h),
 * torch.distributed.checkpoint (dcp.h), NxD Training's (nxdt.h) or Megatron-LM's
 * (megatron_dist.h, megatron_ranks.h); and where its configuration is. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"

enum torch_kind {
    TORCH_NONE,
    TORCH_DCP,
    TORCH_NXDT,
    TORCH_META,
    TORCH_MEGATRON,
    TORCH_MEGATRON_RANKS
};
/* Detects the kind of the files. */
enum torch_kind torch_files_kind(const char *path);
static inline bool torch_files_detect(const char *path)
{
    return torch_files_kind(path) != TORCH_NONE;
}
/* Whether `path` is a checkpoint of Megatron-LM: the folder that holds iter_N, an iter_N, or an
 * mp_rank_N inside one. */
bool torch_files_are_megatron(const char *path);
/* Reads which iteration latest_checkpointed_iteration.txt names in a folder of Megatron-LM's; -1 is
 * "release".  MISSING: no such file.  DATA: another content. */
enum status torch_files_last_iteration(const char *path, int64_t *iteration);
char *torch_files_iteration_path(const char *path, int64_t iteration); /* heap */
/* Opens the tensors.  `shape` NULL: the heads are not known yet. */
enum status torch_files_open(struct tensor_slices *slices, const char *path,
                             const struct model_shape *shape);
/* Opens its optimizer's moments, possibly none (NxD Training's are not supported), and reads the
 * training state: see dcp.h, megatron_dist.h and megatron_ranks.h.  UNSUPPORTED: they have a form
 * that is not read. */
enum status torch_files_open_moments(struct tensor_slices *slices, const char *path,
                                     const struct model_shape *shape, struct torch_state *state);
/* What to do instead where that is UNSUPPORTED; NULL: unknown. */
const char *torch_files_moments_advice(const char *path);

/* The folder of its config.json or params.json: the files' own, or for formats that have neither,
 * DCP and those of NxD Training and Megatron-LM, one of the two folders above it.  Heap; the files'
 * own folder if neither exists. */
char *torch_files_folder(const char *path);
/* Reads the shape from either and the tensors, or from Megatron-LM's arguments.  Sizes that the
 * tensors of a partial model do not determine are those of `model`; NULL: the tensors are required.
 * MISSING: none exists. */
enum status torch_files_shape(const char *path, const struct model_shape *model,
                              struct model_shape *shape);
/* Whether torch_files_shape has a file to read, even if it is malformed. */
bool torch_files_have_shape(const char *path);
