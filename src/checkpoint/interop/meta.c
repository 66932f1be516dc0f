// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/meta.h"

#include "base/file.h"
#include "checkpoint/interop/params_json.h"
#include "formats/torch_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_pth(const char *path)
{
    size_t len = strlen(path);
    return len > 4 && (!strcmp(path + len - 4, ".pth") || !strcmp(path + len - 3, ".pt"));
}

/* Lists the files <prefix>*.pth of a folder, whose name may have brackets: it is no pattern. */
static enum status list_folder(const char *folder, const char *prefix, struct file_list *files)
{
    struct file_list all;
    size_t len = strlen(prefix);
    TRY(file_list_dir(&all, folder));
    for (size_t i = 0; i < all.count; i++) {
        const char *name = all.paths[i];
        if (name[0] == '.' || strncmp(name, prefix, len) || !file_has_suffix(name + len, ".pth"))
            continue;
        files->paths = heap_grow(files->paths, files->count + 1, sizeof *files->paths);
        files->paths[files->count++] = file_join(folder, name);
    }
    file_list_release(&all);
    return STATUS_OK;
}

/* Meta's own files, or else all that end in .pth.  Sorted names are in rank order. */
static enum status list_files(const char *path, struct file_list *files)
{
    *files = (struct file_list){0};
    if (!file_is_dir(path)) {
        files->paths = heap(sizeof *files->paths);
        files->paths[files->count++] = heap_strdup(path);
        return STATUS_OK;
    }
    TRY(list_folder(path, "consolidated.", files));
    if (!files->count) TRY(list_folder(path, "", files));
    if (!files->count) FAIL(MISSING, "%s: no file ends in .pth", path);
    return STATUS_OK;
}

bool meta_detect(const char *path)
{
    struct file_list files;
    if (!file_is_dir(path)) return is_pth(path) && file_exists(path);
    if (list_files(path, &files)) return false;
    file_list_release(&files);
    return true;
}

char *meta_folder(const char *path)
{
    return file_is_dir(path) ? heap_strdup(path) : file_parent(path);
}

/* One model-parallel shard. */
struct meta_shard {
    struct tensor_slices *slices;
    const struct model_shape *shape;
    const struct file_map *map;
    int64_t index, count;
    int64_t width; /* of the model, from its norms */
};

static int64_t norm_width(const struct torch_tensors *t)
{
    struct tensor_name name;
    for (size_t i = 0; i < t->count; i++)
        if (tensor_name_parse(t->all[i].name, &name) && param_is_vector(name.id) &&
            t->all[i].num_dims == 1)
            return t->all[i].shape[0];
    return 0;
}

static enum status add_tensor(const struct meta_shard *s, const struct tensor_name *name,
                              const struct torch_tensor *t)
{
    const struct param *kind = &params[name->id];
    int64_t row = 0, column = 0, index = s->index;
    bool by_column = kind->tp && kind->axes[1] == kind->tp;
    if (!kind->tp && index) return STATUS_OK; /* replicated in every shard */
    if (name->id == PARAM_embed && t->num_dims == 2 && t->shape[1] != s->width) by_column = true;
    if ((name->id == PARAM_attn_k || name->id == PARAM_attn_v) && s->shape && t->num_dims == 2) {
        int64_t all = (int64_t)s->shape->G * s->shape->K, each = t->shape[0];
        int64_t same = each > 0 && each <= all ? s->count / (all / each) : 1;
        if (same > 1 && index % same) return STATUS_OK;
        if (same > 1) index /= same;
    }
    bool bad = __builtin_mul_overflow(index, t->num_dims ? t->shape[0] : 0, &row) ||
               __builtin_mul_overflow(index, t->num_dims > 1 ? t->shape[1] : 0, &column);
    if (bad) FAIL(DATA, "%s: %s has an invalid shape", s->slices->path, t->name);
    const struct file_slice slice = {t, s->map, by_column ? 0 : row, by_column ? column : 0};
    TRY(tensor_slices_add(s->slices, name, &slice));
    return STATUS_OK;
}

static enum status add_tensors(struct meta_shard *s, const struct torch_tensors *t)
{
    s->width = norm_width(t);
    for (size_t i = 0; i < t->count; i++) {
        struct tensor_name name;
        const char *full = t->all[i].name;
        if (tensor_name_parse(full, &name) && name.kind == TENSOR_WEIGHT)
            TRY(add_tensor(s, &name, &t->all[i]));
        else if (!tensor_name_is_ignored(full))
            FAIL(DATA, "%s: tensor %s does not belong to a Llama", s->slices->path, full);
    }
    return STATUS_OK;
}

static enum status open_file(struct meta_shard *s, const char *path)
{
    struct torch_archive a = {0};
    struct torch_tensors tensors = {0};
    enum status st = STATUS_OK;
    TRY_OUT(tensor_slices_map(s->slices, path, &s->map));
    TRY_OUT(torch_archive_open(&a, s->map->data, s->map->size, path));
    TRY_OUT(torch_archive_tensors(&a, &tensors));
    TRY_OUT(add_tensors(s, &tensors));
out:
    torch_tensors_release(&tensors);
    torch_archive_close(&a);
    return st;
}

enum status meta_open(struct tensor_slices *slices, const char *path,
                      const struct model_shape *shape)
{
    struct file_list files = {0};
    struct meta_shard s = {.slices = slices, .shape = shape};
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    slices->head_dim = shape ? shape->K : 0;
    TRY_OUT(list_files(path, &files));
    s.count = (int64_t)files.count;
    for (; s.index < s.count; s.index++) TRY_OUT(open_file(&s, files.paths[s.index]));
    TRY_OUT(tensor_slices_finish(slices));
out:
    file_list_release(&files);
    return tensor_slices_opened(slices, st);
}

/* Meta's code loads with strict=True, so a tied model must have the embedding under both names.
 * Returns the embedding's index in the layout; -1: not tied. */
static int tied_embedding(const struct torch_model *m)
{
    for (int i = 0; i < m->layout->num_tensors && m->shape->tied; i++)
        if (m->layout->tensors[i].id == PARAM_embed) return i;
    return -1;
}

static enum status write_tensors(const struct torch_model *m, int fd, const char *path)
{
    int count = m->layout->num_tensors, tied = tied_embedding(m);
    struct torch_tensor *tensors = heap(((size_t)count + 1) * sizeof *tensors);
    struct torch_writer w = {0};
    uint64_t size;
    enum status st = STATUS_OK;
    for (int i = 0; i < count; i++) tensors[i] = torch_model_tensor(m, i);
    if (tied >= 0) {
        const char *head = params[PARAM_head].name;
        tensors[count] = tensors[tied];
        tensors[count++].name = heap_strdup(head);
    }
    TRY_OUT(torch_writer_open(&w, fd, path, 0, tensors, (size_t)count));
    for (int i = 0; i < m->layout->num_tensors; i++)
        TRY_OUT(torch_model_stream(m, i, torch_model_write, &w));
    if (tied >= 0) TRY_OUT(torch_model_stream(m, tied, torch_model_write, &w));
    TRY_OUT(torch_writer_close(&w, &size));
    if (fsync(fd)) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
out:
    torch_writer_release(&w);
    for (int i = 0; i < count; i++) free(tensors[i].name);
    free(tensors);
    return st;
}

enum status meta_write(const struct torch_model *m, const char *folder)
{
    char *path = file_join(folder, "consolidated.00.pth"),
         *config = file_join(folder, "params.json");
    struct text json = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    enum status st = STATUS_OK;
    if (fd < 0) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    TRY_OUT(write_tensors(m, fd, path));
    params_json_write(m->shape, &json);
    TRY_OUT(file_write(config, json.data, json.len));
out:
    if (fd >= 0) close(fd);
    text_release(&json);
    free(path), free(config);
    return st;
}
