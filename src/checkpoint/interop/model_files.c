// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/model_files.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/interop/hf_fused.h"
#include "checkpoint/interop/pytorch_bin.h"
#include "checkpoint/interop/tensor_name.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/interop/weight_map.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status open_file(struct model_files *m, const char *folder, const char *name,
                             const struct safetensors **file)
{
    char *path = file_join(folder, name);
    enum status st = STATUS_OK;
    for (size_t i = m->count; i-- > 0;) {
        *file = &m->files[i];
        if (!strcmp((*file)->path, path)) goto out; /* already open */
    }
    m->files = heap_grow(m->files, m->count + 1, sizeof *m->files);
    TRY_OUT(safetensors_open(&m->files[m->count], path));
    *file = &m->files[m->count++];
out:
    free(path);
    return st;
}

static enum status open_indexed(struct model_files *m, const char *folder, const char *index)
{
    struct json *root;
    const struct json *map;
    enum status st = STATUS_OK;
    TRY(weight_map_read(index, &root, &map));
    for (const struct json *v = json_first(map); v; v = json_next(v)) {
        const struct safetensors *file;
        TRY_OUT(open_file(m, folder, json_string(v), &file));
        if (!safetensors_find(file, json_key(v)))
            FAIL_OUT(DATA, "%s: tensor %s is missing, but the index lists it", file->path,
                     json_key(v));
    }
out:
    json_free(root);
    return st;
}

#define SINGLE "model.safetensors"

static enum status open_single(struct model_files *m, const char *folder)
{
    TRY(weight_map_check_link(folder, SINGLE));
    TRY(open_file(m, folder, SINGLE, &(const struct safetensors *){0}));
    return STATUS_OK;
}

enum status model_files_open(struct model_files *m, const char *folder)
{
    char *index = file_join(folder, SINGLE ".index.json");
    char *single = file_join(folder, SINGLE);
    enum status st = STATUS_OK;
    *m = (struct model_files){.folder = heap_strdup(folder)};
    if (file_exists(index))
        TRY_OUT(open_indexed(m, folder, index));
    else if (file_exists(single))
        TRY_OUT(open_single(m, folder));
    else
        FAIL_OUT(MISSING, "%s: neither " SINGLE ".index.json nor " SINGLE, folder);
    for (size_t i = 0; i < m->count; i++)
        TRY_OUT(safetensors_rename(&m->files[i], tensor_name_unwrap));
out:
    free(index);
    free(single);
    if (st) model_files_close(m);
    return st;
}

bool model_files_have_safetensors(const char *folder)
{
    return file_exists_in(folder, SINGLE ".index.json") || file_exists_in(folder, SINGLE);
}

bool model_files_detect(const char *path)
{
    return model_files_have_safetensors(path) || pytorch_bin_detect(path) ||
           torch_files_detect(path);
}

/* Replaces Phi-3's fused matrices by their parts. */
static enum status split_fused(struct safetensors *file, const struct model_shape *shape)
{
    const size_t count = file->count;
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_tensor *t = &file->tensors[i];
        struct safetensors_part parts[HF_FUSED_PARTS];
        struct hf_fused_split split;
        enum status st = hf_fused_split(&split, t->name, t->num_dims ? t->shape[0] : 0, shape);
        for (int k = 0; k < split.count; k++)
            parts[k] = (struct safetensors_part){split.parts[k].name, split.parts[k].row,
                                                 split.parts[k].rows};
        if (!st && split.count) safetensors_split(file, i, parts, (size_t)split.count);
        hf_fused_split_release(&split);
        if (st) return status_prefix(st, "%s", file->path);
    }
    return safetensors_index(file);
}

static enum status open_safetensors(struct model_files *m, const char *folder,
                                    const struct model_shape *shape)
{
    enum status st = STATUS_OK;
    TRY(model_files_open(m, folder));
    for (size_t i = 0; i < m->count && !st; i++) st = split_fused(&m->files[i], shape);
    if (st) model_files_close(m);
    return st;
}

enum status model_files_open_any(struct model_files *m, const char *path,
                                 const struct model_shape *shape)
{
    if (model_files_have_safetensors(path) || !model_files_detect(path)) {
        TRY(open_safetensors(m, path, shape));
        return STATUS_OK;
    }
    *m = (struct model_files){.folder = heap_strdup(path)};
    m->slices = heap(sizeof *m->slices);
    enum status st = pytorch_bin_detect(path) ? pytorch_bin_open(m->slices, path, shape)
                                              : torch_files_open(m->slices, path, shape);
    if (st) model_files_close(m);
    return st;
}

/* Opens the files of a checkpoint whose names begin with `stem`. */
static enum status open_listed(struct model_files *m, const char *folder, const char *stem)
{
    struct file_list names;
    enum status st = STATUS_OK;
    TRY(manifest_list(folder, &names));
    *m = (struct model_files){.folder = heap_strdup(folder)};
    for (size_t i = 0; i < names.count && !st; i++) {
        if (strncmp(names.paths[i], stem, strlen(stem))) continue;
        char *path = file_join(folder, names.paths[i]);
        m->files = heap_grow(m->files, m->count + 1, sizeof *m->files);
        st = safetensors_open(&m->files[m->count], path);
        m->count += st == STATUS_OK;
        free(path);
    }
    file_list_release(&names);
    if (st) model_files_close(m);
    return st;
}

enum status model_files_open_moments(struct model_files *m, const char *folder)
{
    return open_listed(m, folder, "optimizer-");
}

static bool is_checkpoint(const char *folder) { return file_exists_in(folder, MANIFEST_NAME); }

enum status model_files_open_ema(struct model_files *m, const char *folder)
{
    if (is_checkpoint(folder)) return open_listed(m, folder, "ema-");
    *m = (struct model_files){.folder = heap_strdup(folder)};
    return STATUS_OK;
}

static enum status open_moments(struct model_files *m, const char *path,
                                const struct model_shape *shape, struct torch_state *state)
{
    torch_state_init(state);
    if (is_checkpoint(path)) {
        TRY(model_files_open_moments(m, path));
        return STATUS_OK;
    }
    *m = (struct model_files){.folder = heap_strdup(path)};
    if (model_files_have_safetensors(path) || pytorch_bin_detect(path) || !torch_files_detect(path))
        return STATUS_OK;
    m->slices = heap(sizeof *m->slices);
    enum status st = torch_files_open_moments(m->slices, path, shape, state);
    if (st) model_files_close(m);
    return st;
}

enum status model_files_open_moments_any(struct model_files *m, const char *path,
                                         const struct model_shape *shape, struct torch_state *state)
{
    struct failure why = {0};
    enum status st = open_moments(m, path, shape, state);
    const char *advice = st == STATUS_UNSUPPORTED ? torch_files_moments_advice(path) : NULL;
    if (!advice) return st;
    status_save(&why, st);
    size_t used = strlen(why.message);
    snprintf(why.message + used, sizeof why.message - used, "; %s", advice);
    return status_restore(&why);
}

enum status model_files_open_known_moments(struct model_files *m, const char *path,
                                           const struct model_shape *shape,
                                           struct torch_state *state)
{
    enum status st = open_moments(m, path, shape, state);
    if (!st && state->other_moment[0]) torch_state_warn(state, path);
    if (st != STATUS_UNSUPPORTED) return st;
    log_line(LOG_WARN, "ignoring the optimizer's moments: %s", status_message());
    torch_state_release(state);
    return STATUS_OK;
}

bool model_files_are_empty(const struct model_files *m)
{
    return m->count == 0 && (!m->slices || m->slices->count == 0);
}

void model_files_close(struct model_files *m)
{
    for (size_t i = 0; i < m->count; i++) safetensors_close(&m->files[i]);
    if (m->slices) tensor_slices_release(m->slices);
    free(m->slices);
    free(m->files);
    free(m->folder);
    *m = (struct model_files){0};
}

const struct safetensors_tensor *model_files_find(const struct model_files *m, const char *name,
                                                  const struct safetensors **file)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct safetensors_tensor *t = safetensors_find(&m->files[i], name);
        if (t) {
            *file = &m->files[i];
            return t;
        }
    }
    return NULL;
}

enum status model_files_open_scale(const struct model_files *m, struct tensor_reader *r)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    const struct safetensors_tensor *scales = NULL;
    const struct safetensors *file;
    if (!r->tensor || !weight_scale_is_needed(r->tensor->dtype)) return STATUS_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !scales; i++) {
        struct text name = {0};
        text_addf(&name, "%s%s", r->tensor->name, suffixes[i]);
        scales = model_files_find(m, name.data, &file);
        text_release(&name);
    }
    if (!scales)
        FAIL(DATA, "%s: tensor %s is %s, but neither %s_scale nor %s_scale_inv exists",
             r->file->path, r->tensor->name, safetensors_dtype_name(r->tensor->dtype),
             r->tensor->name, r->tensor->name);
    return weight_scale_open(&r->scale, r->tensor, file, scales);
}

static struct tensor_name tensor_name_of(const struct tensor_slot *t, enum tensor_kind kind)
{
    return (struct tensor_name){tensor_name_hf_id(t->id), t->layer, kind};
}

bool model_files_dtype(const struct model_files *m, const struct tensor_slot *t,
                       enum safetensors_dtype *dtype)
{
    const struct safetensors *file;
    char name[96];
    if (m->slices) {
        const struct tensor_name wanted = tensor_name_of(t, TENSOR_WEIGHT);
        const struct sliced_tensor *p = tensor_slices_find(m->slices, &wanted);
        if (p && p->count) *dtype = p->all[0].dtype;
        return p && p->count;
    }
    layout_tensor_name(t, true, name);
    const struct safetensors_tensor *have = model_files_find(m, name, &file);
    if (have) *dtype = have->dtype;
    return have != NULL;
}

static enum status open_sliced(const struct model_files *m, const struct tensor_slot *t,
                               const char *name, struct tensor_reader *r)
{
    const struct tensor_name wanted = tensor_name_of(t, tensor_name_kind(name));
    const struct sliced_tensor *have = tensor_slices_find(m->slices, &wanted);
    if (!have)
        FAIL(DATA, "%s: tensor %s is missing (in Hugging Face's names)%s", m->folder, name,
             wanted.kind ? ", so this is not the whole state of AdamW; use --model-only to convert "
                           "the weights"
                         : "");
    if (have->rows != t->rows || have->columns != t->columns)
        FAIL(DATA, "%s: tensor %s has shape [%lld, %lld], expected [%lld, %lld]", m->folder, name,
             (long long)have->rows, (long long)have->columns, (long long)t->rows,
             (long long)t->columns);
    *r = (struct tensor_reader){.slices = m->slices, .sliced = have};
    return STATUS_OK;
}

enum status model_files_open_tensor(const struct model_files *m, const struct tensor_slot *t,
                                    const char *name, struct tensor_reader *r)
{
    const struct safetensors *file;
    if (m->slices) {
        TRY(open_sliced(m, t, name, r));
        return STATUS_OK;
    }
    const struct safetensors_tensor *have = model_files_find(m, name, &file);
    bool vector = params[t->id].axes[1] == 0;
    if (!have) FAIL(DATA, "%s: tensor %s is missing", m->folder, name);
    bool same = have->num_dims == (vector ? 1 : 2) && have->shape[0] == t->rows &&
                (vector || have->shape[1] == t->columns);
    if (!same)
        FAIL(DATA, "%s: tensor %s has shape [%lld, %lld], expected [%lld, %lld]", file->path, name,
             (long long)have->shape[0], (long long)(have->num_dims > 1 ? have->shape[1] : 1),
             (long long)t->rows, (long long)t->columns);
    *r = (struct tensor_reader){.file = file, .tensor = have};
    TRY(model_files_open_scale(m, r));
    return STATUS_OK;
}

static bool layout_has(const struct layout *l, const struct tensor_name *n)
{
    for (int id = 0; id < PARAM_COUNT; id++)
        if (tensor_name_hf_id((enum param_id)id) == n->id &&
            layout_find(l, (enum param_id)id, n->layer))
            return true;
    return false;
}

static enum status check_sliced(const struct tensor_slices *p, const struct layout *l, bool tied)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct tensor_name *n = &p->tensors[i].name;
        const struct tensor_slot place = {.id = n->id, .layer = n->layer};
        char name[96];
        if (layout_has(l, n) || (tied && n->id == PARAM_head)) continue;
        layout_tensor_name(&place, false, name);
        FAIL(CONFIG, "%s: the model has no tensor %s", p->path, name);
    }
    return STATUS_OK;
}

/* Whether the tensor scales weights in FP8, or what is multiplied with them. */
static bool belongs_to_fp8(const struct model_files *m, const char *name)
{
    size_t len;
    const struct safetensors *file;
    if (!weight_scale_is_name(name, &len)) return false;
    for (size_t f = 0; f < m->count && !len; f++) /* of activations: any weight in FP8 will do */
        for (size_t i = 0; i < m->files[f].count; i++)
            if (weight_scale_is_needed(m->files[f].tensors[i].dtype)) return true;
    if (!len) return false;
    char *weight = heap_string(name, len);
    const struct safetensors_tensor *t = model_files_find(m, weight, &file);
    free(weight);
    return t && weight_scale_is_needed(t->dtype);
}

enum status model_files_check(const struct model_files *m, const struct layout *l, bool tied)
{
    if (m->slices) TRY(check_sliced(m->slices, l, tied));
    for (size_t f = 0; f < m->count; f++)
        for (size_t i = 0; i < m->files[f].count; i++) {
            const char *name = m->files[f].tensors[i].name;
            if (layout_find_hf(l, name) || strstr(name, "rotary_emb.inv_freq")) continue;
            if (tied && !strcmp(name, "lm_head.weight")) continue;
            if (belongs_to_fp8(m, name)) continue;
            FAIL(CONFIG, "%s: the model has no tensor %s", m->files[f].path, name);
        }
    return STATUS_OK;
}

size_t model_files_num_files(const struct model_files *m)
{
    return m->slices ? m->slices->num_maps : m->count;
}

struct model_file model_files_file(const struct model_files *m, size_t i)
{
    if (!m->slices)
        return (struct model_file){file_name(m->files[i].path), m->files[i].map.size,
                                   m->files[i].count};
    const struct tensor_slices *p = m->slices;
    struct model_file file = {file_name(p->files[i]), p->maps[i]->size, 0};
    for (size_t t = 0; t < p->count; t++) {
        bool there = false;
        for (size_t k = 0; k < p->tensors[t].count; k++)
            there |= p->tensors[t].all[k].map == p->maps[i];
        file.num_tensors += there;
    }
    return file;
}

size_t model_files_num_tensors(const struct model_files *m)
{
    size_t count = m->slices ? m->slices->count : 0;
    for (size_t f = 0; f < m->count; f++) count += m->files[f].count;
    return count;
}

static struct model_tensor sliced_model_tensor(const struct tensor_slices *p,
                                               const struct sliced_tensor *t)
{
    struct model_tensor out = {
        .is = {.name = t->hf_name,
               .dtype = SAFETENSORS_F32,
               .num_dims = t->num_dims,
               .shape = {t->rows, t->columns},
               .elements = (uint64_t)(t->rows * t->columns)},
        .file = "",
        .reader = {.slices = p, .sliced = t},
    };
    if (t->count) out.is.dtype = t->all[0].dtype;
    for (size_t i = 0; t->count && i < p->num_maps; i++)
        if (t->all[0].map == p->maps[i]) out.file = file_name(p->files[i]);
    return out;
}

static struct model_tensor safetensors_model_tensor(const struct model_files *m,
                                                    const struct safetensors *file,
                                                    const struct safetensors_tensor *t)
{
    struct model_tensor out = {
        .is = *t, .file = file_name(file->path), .reader = {.file = file, .tensor = t}};
    /* without scales, reading the tensor fails */
    if (model_files_open_scale(m, &out.reader)) out.reader.scale.tensor = NULL;
    return out;
}

struct model_tensor model_files_tensor(const struct model_files *m, size_t i)
{
    size_t f = 0;
    if (m->slices) return sliced_model_tensor(m->slices, &m->slices->tensors[i]);
    for (; i >= m->files[f].count; f++) i -= m->files[f].count;
    return safetensors_model_tensor(m, &m->files[f], &m->files[f].tensors[i]);
}

bool model_files_named(const struct model_files *m, const char *name, struct model_tensor *t)
{
    const struct safetensors *file;
    for (size_t i = 0; m->slices && i < m->slices->count; i++)
        if (!strcmp(m->slices->tensors[i].hf_name, name)) {
            *t = sliced_model_tensor(m->slices, &m->slices->tensors[i]);
            return true;
        }
    const struct safetensors_tensor *have = model_files_find(m, name, &file);
    if (have) *t = safetensors_model_tensor(m, file, have);
    return have != NULL;
}
