/* meta.h -- Meta's checkpoints: params.json and consolidated.00.pth, or one file a model-parallel
 * rank.
 *
 * Shards   Of N files each has an Nth of a tensor along the axis that llama.params names for tensor
 *          parallelism, and norms are the same in all.  Llama 1 and 2 cut the embedding by columns,
 *          3 by the vocabulary.  With more files than heads of keys, neighbours have the same ones.
 * Memory   Reading maps the files; writing takes a few megabytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_model.h"

/* A folder with *.pth in it, or one such file? */
bool meta_detect(const char *path);
/* The folder that its params.json is in; heap. */
char *meta_folder(const char *path);

/* The tensors.  `shape`: which model's; NULL: heads are not known yet.  DATA: what is wrong with a
 * file; a tensor that no Llama has. */
enum status meta_open(struct tensor_slices *p, const char *path, const struct model_shape *shape);

/* consolidated.00.pth and params.json, into a folder that is there; synchronized. */
enum status meta_write(const struct torch_model *m, const char *folder);
