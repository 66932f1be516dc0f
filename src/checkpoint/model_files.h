/* model_files.h -- the safetensors files of a Hugging Face folder, as one set of tensors.
 *
 * model.safetensors.index.json, else model.safetensors.  A name of the index may not leave the
 * folder, and what it says must be there. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/safetensors.h"
#include "model/params.h"
#include "tensor/dtype.h"

struct model_files {
    char *folder; /* owned */
    struct safetensors *files;
    size_t count;
};

/* MISSING: the folder has neither.  DATA: what is wrong, and in which file. */
enum status model_files_open(struct model_files *m, const char *folder);
/* The optimizer's files of a checkpoint: those that its manifest names, maybe none. */
enum status model_files_open_moments(struct model_files *m, const char *folder);
void model_files_close(struct model_files *m);

const struct safetensors_tensor *model_files_find(const struct model_files *m, const char *name,
                                                  const struct safetensors **file);

/* One tensor, read run by run. */
struct tensor_reader {
    const struct safetensors *file;
    const struct safetensors_tensor *tensor;
    uint64_t begin, end; /* elements read since what was read left the mapping */
};
/* The tensor of that name; t says which shape it must have.  DATA: missing, or another. */
enum status tensor_reader_open(struct tensor_reader *r, const struct model_files *m,
                               const struct tensor_place *t, const char *name);
/* `count` of its elements from `first` on, as numbers of `dtype`.  MEMORY: what was read leaves the
 * mapping, a few megabytes later. */
enum status tensor_reader_read(struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out);
void tensor_reader_close(struct tensor_reader *r); /* all of it has left */

/* Nothing the model lacks may be dropped in silence.  DATA: a tensor the layout does not have. */
enum status model_files_check(const struct model_files *m, const struct layout *l, bool tied);
