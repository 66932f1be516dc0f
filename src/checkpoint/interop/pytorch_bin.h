/* pytorch_bin.h -- Hugging Face folders of before safetensors: pytorch_model.bin as torch.save
 * wrote it, or several such files and pytorch_model.bin.index.json.
 *
 * Memory   Reading maps the files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

bool pytorch_bin_is_here(const char *folder);

/* The tensors, whose rows are in our order.  DATA: what is wrong with the index or a file; a tensor
 * that no Llama has.  UNSUPPORTED: a file of before torch 1.6. */
enum status pytorch_bin_open(struct tensor_slices *p, const char *folder);
