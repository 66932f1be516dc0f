// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/pytorch_bin.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/interop/hf_fused.h"
#include "checkpoint/interop/weight_map.h"

#include <stdlib.h>
#include <string.h>

#define SINGLE "pytorch_model.bin"
#define INDEX  "pytorch_model.bin.index.json"

bool pytorch_bin_detect(const char *folder)
{
    return file_exists_in(folder, SINGLE) || file_exists_in(folder, INDEX);
}

static enum status add_tensor(struct tensor_slices *slices, const struct torch_tensor *t,
                              const char *hf_name, const struct file_map *map)
{
    struct tensor_name name;
    if (tensor_name_parse_hf(hf_name, &name)) {
        if (tensor_slices_find(slices, &name)) FAIL(DATA, "duplicate tensor %s", hf_name);
        return tensor_slices_add(slices, &name, &(struct file_slice){t, map, 0, 0});
    }
    if (!tensor_name_is_ignored_hf(hf_name))
        FAIL(DATA, "tensor %s does not belong to a Llama", hf_name);
    return STATUS_OK;
}

/* Adds the parts of a fused matrix, or the tensor itself. */
static enum status add_parts(struct tensor_slices *slices, const struct torch_tensor *t,
                             const struct hf_fused_split *split, const struct file_map *map)
{
    if (!split->count) return add_tensor(slices, t, t->name, map);
    for (int i = 0; i < split->count; i++) {
        struct torch_tensor part = *t;
        part.shape[0] = split->parts[i].rows;
        if (t->num_dims == 1 || (t->num_dims == 2 && t->shape[1]))
            part.data +=
                (size_t)(split->parts[i].row * t->strides[0]) * safetensors_dtype_bytes(t->dtype);
        TRY(add_tensor(slices, &part, split->parts[i].name, map));
    }
    return STATUS_OK;
}

static enum status add_tensors(struct tensor_slices *slices, const struct torch_tensors *t,
                               const struct file_map *map, const struct model_shape *shape)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct torch_tensor *one = &t->all[i];
        struct hf_fused_split split;
        enum status st =
            hf_fused_split(&split, one->name, one->num_dims ? one->shape[0] : 0, shape);
        if (!st) st = add_parts(slices, one, &split, map);
        hf_fused_split_release(&split);
        if (st) return st;
    }
    return STATUS_OK;
}

static enum status open_file(struct tensor_slices *slices, const char *path,
                             const struct model_shape *shape)
{
    struct torch_archive a = {0};
    struct torch_tensors tensors = {0};
    const struct file_map *map;
    enum status st = STATUS_OK;
    TRY_OUT(tensor_slices_map(slices, path, &map));
    TRY_OUT(torch_archive_open(&a, map->data, map->size, path));
    TRY_OUT(torch_archive_tensors(&a, &tensors));
    st = add_tensors(slices, &tensors, map, shape);
    if (st) status_prefix(st, "%s", path);
out:
    torch_tensors_release(&tensors);
    torch_archive_close(&a);
    return st;
}

/* Opens a file of the index unless it is open already. */
static enum status open_named(struct tensor_slices *slices, const char *folder, const char *name,
                              const struct model_shape *shape, struct file_list *opened)
{
    for (size_t i = opened->count; i-- > 0;)
        if (!strcmp(opened->paths[i], name)) return STATUS_OK;
    opened->paths = heap_grow(opened->paths, opened->count + 1, sizeof *opened->paths);
    opened->paths[opened->count++] = heap_strdup(name);
    char *path = file_join(folder, name);
    enum status st = open_file(slices, path, shape);
    free(path);
    return st;
}

static enum status open_indexed(struct tensor_slices *slices, const char *folder,
                                const struct model_shape *shape, const char *index)
{
    struct file_list opened = {0};
    struct json *root;
    const struct json *map;
    enum status st = STATUS_OK;
    TRY(weight_map_read(index, &root, &map));
    for (const struct json *v = json_first(map); v; v = json_next(v)) {
        struct tensor_name name;
        TRY_OUT(open_named(slices, folder, json_string(v), shape, &opened));
        if (tensor_name_parse_hf(json_key(v), &name) && !tensor_slices_find(slices, &name))
            FAIL_OUT(DATA, "%s: the index lists in %s the tensor %s, which is missing there",
                     folder, json_string(v), json_key(v));
    }
out:
    file_list_release(&opened);
    json_free(root);
    return st;
}

static enum status open_single(struct tensor_slices *slices, const char *folder,
                               const struct model_shape *shape, const char *path)
{
    TRY(weight_map_check_link(folder, SINGLE));
    TRY(open_file(slices, path, shape));
    return STATUS_OK;
}

enum status pytorch_bin_open(struct tensor_slices *slices, const char *folder,
                             const struct model_shape *shape)
{
    char *index = file_join(folder, INDEX), *single = file_join(folder, SINGLE);
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){.path = heap_strdup(folder)};
    TRY_OUT(file_exists(index) ? open_indexed(slices, folder, shape, index)
                               : open_single(slices, folder, shape, single));
    TRY_OUT(tensor_slices_finish(slices));
out:
    free(index), free(single);
    return tensor_slices_opened(slices, st);
}
