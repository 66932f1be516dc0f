/* patches.h -- tensors of a model that lie in pieces in torch's files: Meta's and torch's own
 * checkpoints.
 *
 * Such files have Meta's names (torchtitan's, too) and Meta's order of the rows of q and k, whose
 * rotary pairs are neighbours: row h K + j K/2 + i of ours is row h K + 2 i + j of theirs.
 * Memory   Files are mapped; a patch says where in them its numbers are. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "formats/torch.h"
#include "model/params.h"

enum tensor_kind { TENSOR_WEIGHT, TENSOR_EXP_AVG, TENSOR_EXP_AVG_SQ };

/* What follows the name of a weight in that of its moment: "", ".exp_avg", ".exp_avg_sq". */
const char *tensor_name_suffix(enum tensor_kind kind);
enum tensor_kind tensor_name_kind(const char *name);

/* What of the model a tensor is. */
struct tensor_name {
    enum param_id id;
    int layer;
    enum tensor_kind kind;
};

/* Rows [row, row + rows) and columns [column, column + columns) of a tensor, as their files have
 * it. */
struct tensor_slice {
    const struct file_map *map;
    const unsigned char *data;
    enum safetensors_dtype dtype;
    int64_t row, column, rows, columns;
    int64_t row_stride, column_stride;
};

struct sliced_tensor {
    struct tensor_name name;
    char *hf_name; /* Hugging Face's name of it; owned; by tensor_slices_finish */
    int num_dims;
    int64_t rows, columns;
    struct tensor_slice *all; /* owned */
    size_t count, room;
};

struct tensor_slices {
    char *path;
    struct file_map **maps; /* owned */
    char **files;           /* their paths; owned */
    size_t num_maps;
    struct sliced_tensor *tensors; /* owned */
    size_t count, room;
    int head_dim; /* 0: rows of q and k as the files have them */
};

/* "model.layers.3.attention.wq.weight", "optimizer.state.norm.weight.exp_avg"; false: it is no
 * tensor of a Llama. */
bool tensor_name_parse(const char *name, struct tensor_name *out);
/* It belongs to what is saved beside a model, or follows from its configuration. */
bool tensor_name_is_ignored(const char *name);
/* The same of Hugging Face's names; only weights. */
bool tensor_name_parse_hf(const char *name, struct tensor_name *out);
bool tensor_name_is_ignored_hf(const char *name);
/* A name of that form, whose %d is the layer; without one the layer is -1. */
bool tensor_name_matches(const char *form, const char *name, int *layer);
/* What today's torchtitan calls the tensor that has this name in llama.params; heap. */
char *tensor_name_torchtitan(const char *name);

/* Numbers of that type can be a tensor's of a model. */
bool tensor_slices_supports(enum safetensors_dtype dtype);

enum status tensor_slices_map(struct tensor_slices *p, const char *path,
                              const struct file_map **map);
/* `t` is a part of that tensor, at that place.  DATA: its numbers are none of a model. */
enum status tensor_slices_add(struct tensor_slices *p, const struct tensor_name *name,
                              const struct torch_tensor *t, const struct file_map *map, int64_t row,
                              int64_t column);
/* No more are put; every tensor is covered.  DATA: one is not. */
enum status tensor_slices_finish(struct tensor_slices *p);
void tensor_slices_release(struct tensor_slices *p);

const struct sliced_tensor *tensor_slices_find(const struct tensor_slices *p,
                                               const struct tensor_name *name);
/* Elements [first, first + count) of the tensor, its rows in our order. */
enum status tensor_slices_read(const struct tensor_slices *p, const struct sliced_tensor *t,
                               size_t first, size_t count, float *out);
/* They leave the mappings. */
void tensor_slices_forget(const struct tensor_slices *p, const struct sliced_tensor *t,
                          size_t first, size_t count);
