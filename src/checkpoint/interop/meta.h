/* meta.h -- Meta's checkpoints: params.json and consolidated.00.pth, or one file per model-parallel
 * rank.
 *
 * Shards   Each of N files has 1/N of a tensor along the axis that llama.params names for tensor
 *          parallelism; norms are replicated.  Llama 1 and 2 split the embedding by columns, Llama
 *          3 by vocabulary.  With more files than key/value heads, neighboring files have the same
 *          heads.
 * Memory   Reading maps the files; writing needs a few megabytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_model.h"

/* Whether `path` is a folder with *.pth files, or one such file. */
bool meta_detect(const char *path);
/* The folder of its params.json; heap. */
char *meta_folder(const char *path);

/* Opens the tensors.  `shape` NULL: the heads are not known yet.  DATA: a file is malformed, or a
 * tensor does not belong to a Llama. */
enum status meta_open(struct tensor_slices *slices, const char *path,
                      const struct model_shape *shape);

/* Writes consolidated.00.pth and params.json, with fsync, into an existing folder. */
enum status meta_write(const struct torch_model *m, const char *folder);
