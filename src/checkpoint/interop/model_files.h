/* model_files.h -- the files of a model, as one set of tensors.
 *
 * A Hugging Face folder has model.safetensors.index.json, else model.safetensors.  A name of the
 * index may not leave the folder, and what it says must be there.  What torch saved is seen with
 * Hugging Face's names and order of rows, too: see patches.h. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"
#include "formats/safetensors.h"
#include "model/params.h"
#include "tensor/dtype.h"

struct model_files {
    char *folder; /* owned */
    struct safetensors *files;
    size_t count;
    struct tensor_slices *slices; /* of files of torch.save; then no others; owned; or NULL */
};

/* Has the folder safetensors?  They come before all else. */
bool model_files_are_safetensors(const char *folder);

/* MISSING: the folder has neither.  DATA: what is wrong, and in which file. */
enum status model_files_open(struct model_files *m, const char *folder);
/* The same, Hugging Face's older files (pytorch_bin.h), and torch's (torch_files.h), in that order
 * where there are several.  `shape`: the model's. */
enum status model_files_open_any(struct model_files *m, const char *path,
                                 const struct model_shape *shape);
/* Any of those? */
bool model_files_detect(const char *path);
/* The optimizer's files of a checkpoint: those that its manifest names, maybe none. */
enum status model_files_open_moments(struct model_files *m, const char *folder);
/* The same of a folder of any kind: a checkpoint of ours, whose `state` stays empty, or torch's
 * files.  After a failure, too, release the state. */
enum status model_files_open_moments_any(struct model_files *m, const char *path,
                                         const struct model_shape *shape,
                                         struct torch_state *state);
void model_files_close(struct model_files *m);

/* Are there no tensors at all? */
bool model_files_are_empty(const struct model_files *m);

const struct safetensors_tensor *model_files_find(const struct model_files *m, const char *name,
                                                  const struct safetensors **file);

/* The files themselves. */
struct model_file {
    const char *name; /* in the folder */
    uint64_t bytes;
    size_t num_tensors; /* that lie in it, or have a piece in it */
};
size_t model_files_num_files(const struct model_files *m);
struct model_file model_files_file(const struct model_files *m, size_t i);

/* One tensor, read run by run. */
struct tensor_reader {
    const struct safetensors *file;
    const struct safetensors_tensor *tensor;
    uint64_t begin, end;                /* elements read since what was read left the mapping */
    const struct tensor_slices *slices; /* of torch's files; then there is no file */
    const struct sliced_tensor *sliced;
};
static inline bool tensor_reader_is_open(const struct tensor_reader *r)
{
    return r->file || r->sliced;
}
/* The tensor of that name; t says which shape it must have.  DATA: missing, or another. */
enum status tensor_reader_open(struct tensor_reader *r, const struct model_files *m,
                               const struct tensor_place *t, const char *name);
/* `count` of its elements from `first` on, as numbers of `dtype`.  MEMORY: what was read leaves the
 * mapping, a few megabytes later. */
enum status tensor_reader_read(struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out);
void tensor_reader_close(struct tensor_reader *r); /* all of it has left */

/* Any tensor that is there, whichever model's. */
struct model_tensor {
    struct safetensors_tensor is; /* Hugging Face's name and shape; its name is borrowed */
    const char *file;             /* name of the file that it is in, or its first piece */
    struct tensor_reader reader;  /* open */
};
size_t model_files_num_tensors(const struct model_files *m);
struct model_tensor model_files_tensor(const struct model_files *m, size_t i);
/* That of the name; false: there is none. */
bool model_files_named(const struct model_files *m, const char *name, struct model_tensor *t);

/* Type of a tensor's numbers, where it is at all. */
bool model_files_dtype(const struct model_files *m, const struct tensor_place *t,
                       enum safetensors_dtype *dtype);
/* Nothing the model lacks may be dropped in silence.  DATA: a tensor the layout does not have. */
enum status model_files_check(const struct model_files *m, const struct layout *l, bool tied);
