/* tensor_slices.h -- tensors of a model that are stored as slices in torch files: Meta's, DCP's and
 * NxD Training's checkpoints.
 *
 * Meta and torchtitan order the rows of q and k so that rotary pairs are adjacent: row h K + j K/2
 * + i of ours is row h K + 2 i + j of theirs.
 * Memory   Files are mapped; a slice points into a mapping. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "formats/torch.h"
#include "model/params.h"

enum tensor_kind { TENSOR_WEIGHT, TENSOR_EXP_AVG, TENSOR_EXP_AVG_SQ };

/* The suffix of a moment's name: "", ".exp_avg", ".exp_avg_sq". */
const char *tensor_name_suffix(enum tensor_kind kind);
enum tensor_kind tensor_name_kind(const char *name);

/* Which tensor of the model or its optimizer a name denotes. */
struct tensor_name {
    enum param_id id;
    int layer;
    enum tensor_kind kind;
};

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
    size_t count, room;
};

struct tensor_slices {
    char *path;
    struct file_map **maps; /* owned */
    char **files;           /* their paths; owned */
    size_t num_maps;
    struct sliced_tensor *tensors; /* owned */
    size_t count, room;
    int head_dim; /* 0: q and k rows are already in our order */
};

/* Parses "model.layers.3.attention.wq.weight", "optimizer.state.norm.weight.exp_avg"; false: not a
 * tensor of a Llama. */
bool tensor_name_parse(const char *name, struct tensor_name *out);
/* Whether the name belongs to other training state, or to a buffer that the configuration
 * determines. */
bool tensor_name_is_ignored(const char *name);
/* The same for Hugging Face's names; weights only. */
bool tensor_name_parse_hf(const char *name, struct tensor_name *out);
bool tensor_name_is_ignored_hf(const char *name);
/* Matches a name against a pattern whose %d is the layer; *layer is -1 without %d. */
bool tensor_name_matches(const char *form, const char *name, int *layer);
/* Current torchtitan's name of the tensor with this name in llama.params; heap. */
char *tensor_name_torchtitan(const char *name);

/* Whether a model's tensors may have this dtype. */
bool tensor_slices_supports(enum safetensors_dtype dtype);

enum status tensor_slices_map(struct tensor_slices *p, const char *path,
                              const struct file_map **map);
/* Adds a slice of a tensor at that position.  DATA: its dtype or shape cannot be a model's. */
enum status tensor_slices_add(struct tensor_slices *p, const struct tensor_name *name,
                              const struct torch_tensor *t, const struct file_map *map, int64_t row,
                              int64_t column);
/* Call after the last slice.  DATA: the slices do not cover a tensor. */
enum status tensor_slices_finish(struct tensor_slices *p);
void tensor_slices_release(struct tensor_slices *p);

const struct sliced_tensor *tensor_slices_find(const struct tensor_slices *p,
                                               const struct tensor_name *name);
/* Reads elements [first, first + count) of the tensor, in our row order. */
enum status tensor_slices_read(const struct tensor_slices *p, const struct sliced_tensor *t,
                               size_t first, size_t count, float *out);
/* Releases their pages from the mappings. */
void tensor_slices_forget(const struct tensor_slices *p, const struct sliced_tensor *t,
                          size_t first, size_t count);
