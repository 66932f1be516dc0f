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
#include "model/layout.h"

enum patch_part { PATCH_WEIGHT, PATCH_EXP_AVG, PATCH_EXP_AVG_SQ };

/* What follows the name of a weight in that of its moment: "", ".exp_avg", ".exp_avg_sq". */
const char *patch_part_suffix(enum patch_part part);
enum patch_part patch_part_of(const char *name);

/* What of the model a tensor is. */
struct patch_name {
    enum param_id id;
    int layer;
    enum patch_part part;
};

/* Rows [row, row + rows) and columns [column, column + columns) of a tensor, as their files have
 * it. */
struct patch {
    const struct file_map *map;
    const unsigned char *data;
    enum safetensors_dtype dtype;
    int64_t row, column, rows, columns;
    int64_t row_stride, column_stride;
};

struct patched {
    struct patch_name name;
    char *called; /* Hugging Face's name of it; owned; by patches_finish */
    int num_dims;
    int64_t rows, columns;
    struct patch *all; /* owned */
    size_t count, room;
};

struct patches {
    char *path;
    struct file_map **maps; /* owned */
    char **files;           /* their paths; owned */
    size_t num_maps;
    struct patched *tensors; /* owned */
    size_t count, room;
    int head_dim; /* 0: rows of q and k as the files have them */
};

/* "model.layers.3.attention.wq.weight", "optimizer.state.norm.weight.exp_avg"; false: it is no
 * tensor of a Llama. */
bool patch_name_read(const char *name, struct patch_name *out);
/* It belongs to what is saved beside a model, or follows from its configuration. */
bool patch_name_is_ignored(const char *name);
/* The same of Hugging Face's names; only weights. */
bool patch_name_read_hf(const char *name, struct patch_name *out);
bool patch_name_is_ignored_hf(const char *name);
/* A name of that form, whose %d is the layer; without one the layer is -1. */
bool patch_name_has_form(const char *form, const char *name, int *layer);
/* What today's torchtitan calls the tensor that has this name in llama.params; heap. */
char *patch_name_newest(const char *name);

/* Numbers of that type can be a tensor's of a model. */
bool patches_read_type(enum safetensors_dtype dtype);

enum status patches_map(struct patches *p, const char *path, const struct file_map **map);
/* `t` is a part of that tensor, at that place.  DATA: its numbers are none of a model. */
enum status patches_put(struct patches *p, const struct patch_name *name,
                        const struct torch_tensor *t, const struct file_map *map, int64_t row,
                        int64_t column);
/* No more are put; every tensor is covered.  DATA: one is not. */
enum status patches_finish(struct patches *p);
void patches_release(struct patches *p);

const struct patched *patches_find(const struct patches *p, const struct patch_name *name);
/* Elements [first, first + count) of the tensor, its rows in our order. */
enum status patches_read(const struct patches *p, const struct patched *t, size_t first,
                         size_t count, float *out);
/* They leave the mappings. */
void patches_forget(const struct patches *p, const struct patched *t, size_t first, size_t count);
