/* tensor_slices.h -- tensors of a model that are stored as slices in torch files: Meta's, DCP's,
 * NxD Training's and Megatron-LM's checkpoints.
 *
 * Reading permutes the rows of q and k, and their biases, from Meta's order to Hugging Face's,
 * which is ours: Meta, torchtitan and Megatron-LM with rotary_interleaved store rotary pairs in
 * adjacent rows, so row h K + j K/2 + i of ours is row h K + 2 i + j of theirs.
 * Memory   Files are mapped; a slice points into a mapping. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "checkpoint/interop/tensor_name.h"
#include "formats/torch.h"

/* Rows [row, row + rows) and columns [column, column + columns) of a tensor, in the file's row
 * order. */
struct tensor_slice {
    const struct file_map *map;
    const unsigned char *data;
    enum safetensors_dtype dtype;
    int64_t row, column, rows, columns;
    int64_t row_stride, column_stride;
};

struct sliced_tensor {
    struct tensor_name name;
    char *hf_name; /* Hugging Face's name, set by tensor_slices_finish; owned */
    int num_dims;
    int64_t rows, columns;
    struct tensor_slice *all; /* owned */
    size_t count, capacity;
};

struct tensor_slices {
    char *path;
    struct file_map **maps; /* owned */
    char **files;           /* their paths; owned */
    size_t num_maps;
    struct sliced_tensor *tensors; /* owned */
    size_t count, capacity;
    int head_dim; /* 0: q and k rows are already in our order */
};

/* Whether a model's tensors may have this dtype. */
bool tensor_slices_supports(enum safetensors_dtype dtype);

enum status tensor_slices_map(struct tensor_slices *s, const char *path,
                              const struct file_map **map);
/* A slice in a file, at the position of its first element in the whole tensor. */
struct file_slice {
    const struct torch_tensor *tensor;
    const struct file_map *map; /* that has its elements */
    int64_t row, column;
};
/* Adds a slice of the tensor `name`.  DATA: its dtype or shape cannot be a model's. */
enum status tensor_slices_add(struct tensor_slices *s, const struct tensor_name *name,
                              const struct file_slice *slice);
/* Call after the last slice.  DATA: the slices do not cover a tensor. */
enum status tensor_slices_finish(struct tensor_slices *s);
/* Checks the mappings after opening, which ended with `st`; releases the slices after a failure. */
enum status tensor_slices_opened(struct tensor_slices *s, enum status st);
void tensor_slices_release(struct tensor_slices *s);

const struct sliced_tensor *tensor_slices_find(const struct tensor_slices *s,
                                               const struct tensor_name *name);
/* Reads elements [first, first + count) of the tensor, in our row order.  Before using them, call
 * tensor_slices_check, which is file_map_check of all its slices. */
enum status tensor_slices_read(const struct tensor_slices *s, const struct sliced_tensor *t,
                               size_t first, size_t count, float *out);
enum status tensor_slices_check(const struct sliced_tensor *t);
/* Releases their pages from the mappings. */
void tensor_slices_forget(const struct tensor_slices *s, const struct sliced_tensor *t,
                          size_t first, size_t count);
