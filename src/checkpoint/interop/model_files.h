/* model_files.h -- a model's files as one set of tensors.
 *
 * A Hugging Face folder has model.safetensors.index.json or model.safetensors.  The index may only
 * name files in the folder, and they must hold what it lists.  Tensors of torch files appear with
 * Hugging Face's names and row order, too: see tensor_slices.h. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_reader.h"
#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"
#include "formats/safetensors.h"
#include "model/shard.h"

struct model_files {
    char *folder; /* owned */
    struct safetensors *files;
    size_t count;
    struct tensor_slices *slices; /* of torch files, instead of `files`; owned; or NULL */
};

/* Whether the folder has safetensors files, which take precedence over other formats. */
bool model_files_have_safetensors(const char *folder);

/* Tensors as they are stored.  MISSING: the folder has neither file.  DATA: a file is malformed;
 * the message names it. */
enum status model_files_open(struct model_files *m, const char *folder);
/* The same for safetensors, Hugging Face's older files (pytorch_bin.h) and torch files
 * (torch_files.h); the first kind found is used.  `shape` is the model's, by which fused matrices
 * are split (hf_fused.h). */
enum status model_files_open_any(struct model_files *m, const char *path,
                                 const struct model_shape *shape);
/* Whether `path` has any of these. */
bool model_files_detect(const char *path);
/* Opens the optimizer's files of a checkpoint: those that its manifest lists, possibly none. */
enum status model_files_open_moments(struct model_files *m, const char *folder);
/* The same for the weights' moving average, which only a checkpoint of ours can have. */
enum status model_files_open_ema(struct model_files *m, const char *folder);
/* Opens the optimizer's files of any kind of folder. A checkpoint of ours leaves `state` empty.
 * Release `state` even after a failure.  UNSUPPORTED: they have a form that is not read; the
 * message ends with what to do instead. */
enum status model_files_open_moments_any(struct model_files *m, const char *path,
                                         const struct model_shape *shape,
                                         struct torch_state *state);
/* The same, but of moments in a form that is not read it only warns, and opens none. */
enum status model_files_open_known_moments(struct model_files *m, const char *path,
                                           const struct model_shape *shape,
                                           struct torch_state *state);
void model_files_close(struct model_files *m);

/* Whether there are no tensors. */
bool model_files_are_empty(const struct model_files *m);

const struct safetensors_tensor *model_files_find(const struct model_files *m, const char *name,
                                                  const struct safetensors **file);

/* One of the files. */
struct model_file {
    const char *name; /* in the folder */
    uint64_t bytes;
    size_t num_tensors; /* that it holds, whole or in part */
};
size_t model_files_num_files(const struct model_files *m);
struct model_file model_files_file(const struct model_files *m, size_t i);

/* A tensor of the files, whether or not a Llama has it. */
struct model_tensor {
    struct safetensors_tensor is; /* Hugging Face's name and shape; the name is borrowed */
    const char *file;             /* name of the file with the tensor or its first slice */
    struct tensor_reader reader;  /* open; reading fails if a tensor in FP8 has no scales */
};
size_t model_files_num_tensors(const struct model_files *m);
struct model_tensor model_files_tensor(const struct model_files *m, size_t i);
/* Finds a tensor by name; false if it does not exist. */
bool model_files_named(const struct model_files *m, const char *name, struct model_tensor *t);

/* Finds the scales of a tensor in FP8; leaves the reader of any other as it is.  DATA: they are
 * missing, or as weight_scale_open. */
enum status model_files_open_scale(const struct model_files *m, struct tensor_reader *r);
/* Opens the tensor `name`, whose shape must be t's.  DATA: it is missing or has another shape; or
 * as model_files_open_scale. */
enum status model_files_open_tensor(const struct model_files *m, const struct tensor_slot *t,
                                    const char *name, struct tensor_reader *r);

/* dtype of a tensor; false if it does not exist. */
bool model_files_dtype(const struct model_files *m, const struct tensor_slot *t,
                       enum safetensors_dtype *dtype);
/* Checks that the model has every tensor of the files, so that none is dropped silently.  CONFIG: a
 * tensor that is not in the layout. */
enum status model_files_check(const struct model_files *m, const struct layout *l, bool tied);
