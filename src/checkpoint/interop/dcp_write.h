/* dcp_writer.h -- a model, or a run of it, as a directory of torch.distributed.checkpoint: torch
 * itself loads it.
 *
 * Names are today's torchtitan's, and every tensor lies in one piece: torch cuts it for whichever
 * ranks load it.
 * Memory   A few megabytes, and the description of the tensors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/dcp_items.h"

/* `run` NULL: the model alone.  __0_K.distcp of at most `file_bytes` (0: 5 GB) where a tensor is
 * not larger by itself, then .metadata, into a folder that is there; synchronized. */
enum status dcp_write(const struct torch_model *m, const struct dcp_run *run, uint64_t file_bytes,
                      const char *folder);
