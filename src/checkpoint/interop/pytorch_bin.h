/* pytorch_bin.h -- reads Hugging Face folders that predate safetensors: pytorch_model.bin as
 * torch.save wrote it, or several such files and pytorch_model.bin.index.json.
 *
 * Memory   Reading maps the files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

bool pytorch_bin_detect(const char *folder);

/* Opens the tensors; their rows are in our order.  DATA: the index or a file is malformed, or a
 * tensor does not belong to a Llama.  CONFIG: fused matrices (hf_fused.h) do not fit `shape`.
 * UNSUPPORTED: a file from before torch 1.6. */
enum status pytorch_bin_open(struct tensor_slices *slices, const char *folder,
                             const struct model_shape *shape);
