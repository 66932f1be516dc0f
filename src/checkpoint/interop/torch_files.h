/* torch_files.h -- a model in files of torch, of whichever kind: Meta's (meta.h), a directory of
 * torch.distributed.checkpoint (dcp.h), or a checkpoint of NxD Training (nxdt.h); and where its
 * configuration is. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"

enum torch_kind { TORCH_NONE, TORCH_DCP, TORCH_NXDT, TORCH_META };
/* Of which kind are the files there? */
enum torch_kind torch_files_kind(const char *path);
static inline bool torch_files_detect(const char *path)
{
    return torch_files_kind(path) != TORCH_NONE;
}
/* The tensors; `shape`: which model's; NULL: heads are not known yet. */
enum status torch_files_open(struct tensor_slices *p, const char *path,
                             const struct model_shape *shape);
/* Its optimizer's moments, maybe none (NxD Training's are not read), and the state of the run: see
 * dcp.h. */
enum status torch_files_open_moments(struct tensor_slices *p, const char *path,
                                     const struct model_shape *shape, struct torch_state *state);

/* The folder of its config.json or params.json: with the files; of a directory of
 * torch.distributed.checkpoint or of NxD Training, which have none of their own, one of the two
 * folders above it, too.
 * Heap; where there is neither, the files' own. */
char *torch_files_folder(const char *path);
/* The shape, from either and the tensors.  MISSING: there is neither. */
enum status torch_files_shape(const char *path, struct model_shape *shape);
bool torch_files_have_shape(const char *path);
