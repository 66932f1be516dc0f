/* dcp_write.h -- writes a model, or a run, as a torch.distributed.checkpoint directory that torch
 * loads.
 *
 * Each tensor is one shard; torch reshards it for the ranks that load it.
 * Memory   A few megabytes, and the metadata of the tensors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/dcp_items.h"

/* `run` NULL: only the model.  Writes __0_K.distcp files of at most `file_bytes` (0: 5 GB; larger
 * only for a single larger tensor), then .metadata, all with fsync, into an existing folder. */
enum status dcp_write(const struct torch_model *m, const struct dcp_target *target,
                      const struct dcp_run *run, uint64_t file_bytes, const char *folder);
