// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static enum status open_one(struct model_files *m, const char *folder, const char *name)
{
    if (!name[0] || strchr(name, '/') || name[0] == '.')
        FAIL(DATA, "%s: the index names the file \"%s\"", folder, name);
    char *path = file_join(folder, name);
    enum status st = STATUS_OK;
    for (size_t i = 0; i < m->count; i++)
        if (!strcmp(m->files[i].path, path)) goto out; /* open already */
    m->files = heap_grow(m->files, m->count + 1, sizeof *m->files);
    TRY_OUT(safetensors_open(&m->files[m->count], path));
    m->count++;
out:
    free(path);
    return st;
}

static enum status open_indexed(struct model_files *m, const char *folder, const char *index)
{
    struct json *root;
    TRY(json_read(index, 256 << 20, &root));
    enum status st = STATUS_OK;
    const struct json *map = json_get(root, "weight_map");
    if (!json_is_object(map)) FAIL_OUT(DATA, "%s: there is no weight_map", index);
    for (const struct json *v = json_first(map); v; v = json_next(v)) {
        if (!json_is_string(v)) FAIL_OUT(DATA, "%s: %s is in no file", index, json_key(v));
        TRY_OUT(open_one(m, folder, json_string(v)));
    }
out:
    json_free(root);
    return st;
}

enum status model_files_open(struct model_files *m, const char *folder)
{
    char *index = file_join(folder, "model.safetensors.index.json");
    char *single = file_join(folder, "model.safetensors");
    enum status st = STATUS_OK;
    *m = (struct model_files){0};
    if (file_exists(index))
        TRY_OUT(open_indexed(m, folder, index));
    else if (file_exists(single))
        TRY_OUT(open_one(m, folder, "model.safetensors"));
    else
        FAIL_OUT(MISSING, "%s: neither model.safetensors.index.json nor model.safetensors", folder);
out:
    free(index);
    free(single);
    if (st) model_files_close(m);
    return st;
}

void model_files_close(struct model_files *m)
{
    for (size_t i = 0; i < m->count; i++) safetensors_close(&m->files[i]);
    free(m->files);
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
