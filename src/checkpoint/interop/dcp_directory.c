// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_directory.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_METADATA = 1 << 30 };

enum status dcp_directory_open(struct dcp_directory *d, const char *path,
                               struct tensor_slices *slices, bool any_class)
{
    enum status (*const parse)(struct pickle *, const unsigned char *, size_t, const char *,
                               size_t *) = any_class ? pickle_parse_any : pickle_parse;
    char *file = file_join(path, ".metadata");
    size_t used;
    enum status st = STATUS_OK;
    *d = (struct dcp_directory){.slices = slices, .path = path};
    TRY_OUT(file_read(file, MAX_METADATA, &d->metadata));
    TRY_OUT(parse(&d->pickle, (unsigned char *)d->metadata.data, d->metadata.len, file, &used));
out:
    free(file);
    return st;
}

void dcp_directory_close(struct dcp_directory *d)
{
    for (size_t i = 0; i < d->count; i++) free(d->names[i]);
    free(d->names);
    pickle_release(&d->pickle);
    text_release(&d->metadata);
    *d = (struct dcp_directory){0};
}

enum status dcp_directory_visit(const struct dcp_directory *d,
                                enum status (*visit)(void *context, const struct dcp_entry *e),
                                void *context)
{
    const struct pickle_value *items =
        pickle_field(d->pickle.root, PICKLE_METADATA, "storage_data");
    if (!items || items->kind != PICKLE_IS_DICT)
        FAIL(DATA, "%s: .metadata has no storage_data", d->path);
    for (size_t i = 0; i < items->count; i += 2) {
        const struct pickle_value *key = items->items[i];
        const struct pickle_value *name = pickle_field(key, PICKLE_METADATA_INDEX, "fqn");
        const struct pickle_value *offset = pickle_field(key, PICKLE_METADATA_INDEX, "offset");
        if (!name || name->kind != PICKLE_IS_STRING || name->len >= TORCH_NAME)
            FAIL(DATA, "%s: .metadata has an entry without a name (FQN)", d->path);
        if (offset && offset->kind == PICKLE_IS_NONE) offset = NULL;
        char *fqn = heap_string(name->text, name->len);
        enum status st = visit(context, &(struct dcp_entry){fqn, offset, items->items[i + 1]});
        free(fqn);
        TRY(st);
    }
    return STATUS_OK;
}

int dcp_directory_shape(const struct dcp_directory *d, const char *fqn, int max, int64_t *shape)
{
    const struct pickle_value *all =
        pickle_field(d->pickle.root, PICKLE_METADATA, "state_dict_metadata");
    const struct pickle_value *size =
        pickle_field(pickle_get(all, fqn), PICKLE_TENSOR_STORAGE_METADATA, "size");
    int dims = pickle_int_tuple(size, max, shape);
    return dims > 0 ? dims : 0;
}

static enum status open_file(struct dcp_directory *d, const struct pickle_value *name,
                             const struct file_map **map)
{
    if (!name || name->kind != PICKLE_IS_STRING || !name->len || name->len > 200 ||
        name->text[0] == '.' || memchr(name->text, '/', name->len) ||
        memchr(name->text, 0, name->len))
        FAIL(DATA, "%s: .metadata names a file outside the folder", d->path);
    for (size_t i = d->count; i-- > 0;)
        if (pickle_is_string(name, d->names[i])) {
            *map = d->slices->maps[i];
            return STATUS_OK;
        }
    d->names = heap_grow(d->names, d->count + 1, sizeof *d->names);
    d->names[d->count++] = heap_string(name->text, name->len);
    char *path = file_join(d->path, d->names[d->count - 1]);
    enum status st = tensor_slices_map(d->slices, path, map);
    free(path);
    TRY(st);
    return STATUS_OK;
}

static bool get_uint64(const struct pickle_value *v, uint64_t *out)
{
    if (!v || v->kind != PICKLE_IS_INT || v->integer < 0) return false;
    *out = (uint64_t)v->integer;
    return true;
}

enum status dcp_directory_find(struct dcp_directory *d, const struct dcp_entry *e,
                               struct dcp_bytes *item)
{
    const struct pickle_value *info = e->info;
    uint64_t at;
    TRY(open_file(d, pickle_field(info, PICKLE_STORAGE_INFO, "relative_path"), &item->map));
    if (!get_uint64(pickle_field(info, PICKLE_STORAGE_INFO, "offset"), &at) ||
        !get_uint64(pickle_field(info, PICKLE_STORAGE_INFO, "length"), &item->size) ||
        at > item->map->size || item->size > item->map->size - at)
        FAIL(DATA, "%s: a shard of %s exceeds its file of %llu bytes", d->path, e->fqn,
             (unsigned long long)item->map->size);
    const struct pickle_value *transforms =
        pickle_field(info, PICKLE_STORAGE_INFO, "transform_descriptors");
    if (transforms && transforms->kind != PICKLE_IS_NONE)
        FAIL(UNSUPPORTED, "%s: %s was saved with a transform, which is not supported", d->path,
             e->fqn);
    item->bytes = item->map->data + at;
    return STATUS_OK;
}

static enum status read_tensor(const struct dcp_bytes *item, const char *fqn,
                               struct torch_tensor *tensor)
{
    struct torch_archive a = {0};
    struct torch_tensors t = {0};
    enum status st = STATUS_OK;
    TRY_OUT(torch_archive_open(&a, item->bytes, item->size, fqn));
    TRY_OUT(torch_archive_tensors(&a, &t));
    if (t.count != 1 || t.all[0].name[0])
        FAIL_OUT(DATA, "expected one tensor in its archive, found %zu", t.count);
    *tensor = t.all[0];
    tensor->name = heap_strdup(fqn);
out:
    torch_tensors_release(&t);
    torch_archive_close(&a);
    return st;
}

enum status dcp_directory_tensor(struct dcp_directory *d, const struct dcp_entry *e,
                                 struct torch_tensor *tensor, const struct file_map **map)
{
    struct dcp_bytes item;
    TRY(dcp_directory_find(d, e, &item));
    TRY_PREFIX(read_tensor(&item, e->fqn, tensor), "%s", d->path);
    *map = item.map;
    return STATUS_OK;
}
