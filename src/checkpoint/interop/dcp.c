// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp.h"

#include "base/file.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_METADATA = 1 << 30 };

bool dcp_detect(const char *path) { return file_exists_in(path, ".metadata"); }

/* names[i] is the name of the file that slices->maps[i] maps. */
struct dcp_reader {
    struct tensor_slices *slices;
    const char *path;
    char **names;
    size_t count;
    struct torch_state *state; /* NULL: read the weights; else the moments and the training state */
};

static enum status open_file(struct dcp_reader *r, const struct pickle_value *name,
                             const struct file_map **map)
{
    if (!name || name->kind != PICKLE_IS_STRING || !name->len || name->len > 200 ||
        name->text[0] == '.' || memchr(name->text, '/', name->len) ||
        memchr(name->text, 0, name->len))
        FAIL(DATA, "%s: .metadata names a file outside the folder", r->path);
    for (size_t i = r->count; i-- > 0;)
        if (pickle_is_string(name, r->names[i])) {
            *map = r->slices->maps[i];
            return STATUS_OK;
        }
    r->names = heap_grow(r->names, r->count + 1, sizeof *r->names);
    r->names[r->count++] = heap_string(name->text, name->len);
    char *path = file_join(r->path, r->names[r->count - 1]);
    enum status st = tensor_slices_map(r->slices, path, map);
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

/* One entry of storage_data: `size` bytes of a file. */
struct stored_item {
    const struct file_map *map;
    const unsigned char *bytes;
    uint64_t size;
};

static enum status find_item(struct dcp_reader *r, const char *fqn, const struct pickle_value *info,
                             struct stored_item *item)
{
    uint64_t at;
    TRY(open_file(r, pickle_field(info, PICKLE_STORAGE_INFO, "relative_path"), &item->map));
    if (!get_uint64(pickle_field(info, PICKLE_STORAGE_INFO, "offset"), &at) ||
        !get_uint64(pickle_field(info, PICKLE_STORAGE_INFO, "length"), &item->size) ||
        at > item->map->size || item->size > item->map->size - at)
        FAIL(DATA, "%s: a shard of %s exceeds its file of %llu bytes", r->path, fqn,
             (unsigned long long)item->map->size);
    const struct pickle_value *transforms =
        pickle_field(info, PICKLE_STORAGE_INFO, "transform_descriptors");
    if (transforms && transforms->kind != PICKLE_IS_NONE)
        FAIL(UNSUPPORTED, "%s: %s was saved with a transform, which is not supported", r->path,
             fqn);
    item->bytes = item->map->data + at;
    return STATUS_OK;
}

/* Adds a shard of a tensor, which is an archive of its own. */
static enum status add_archive(struct dcp_reader *r, const struct tensor_name *name,
                               const char *fqn, const struct stored_item *item,
                               const int64_t offset[2])
{
    struct torch_archive a = {0};
    struct torch_tensors t = {0};
    enum status st = STATUS_OK;
    TRY_OUT(torch_archive_open(&a, item->bytes, item->size, fqn));
    TRY_OUT(torch_archive_tensors(&a, &t));
    if (t.count != 1 || t.all[0].name[0])
        FAIL_OUT(DATA, "expected one tensor in its archive, found %zu", t.count);
    free(t.all[0].name);
    t.all[0].name = heap_string(fqn, strlen(fqn));
    const struct file_slice slice = {&t.all[0], item->map, offset[0], offset[1]};
    TRY_OUT(tensor_slices_add(r->slices, name, &slice));
out:
    torch_tensors_release(&t);
    torch_archive_close(&a);
    return st;
}

static enum status add_tensor(struct dcp_reader *r, const struct tensor_name *name, const char *fqn,
                              const struct pickle_value *offsets, const struct pickle_value *info)
{
    struct stored_item item;
    int64_t offset[2] = {0};
    int dims = params[name->id].axes[1] ? 2 : 1;
    if (pickle_int_tuple(offsets, 2, offset) != dims)
        FAIL(DATA, "%s: %s: expected an offset of %d dimensions", r->path, fqn, dims);
    TRY(find_item(r, fqn, info, &item));
    TRY_PREFIX(add_archive(r, name, fqn, &item, offset), "%s", r->path);
    return STATUS_OK;
}

static enum status add_state(struct dcp_reader *r, const char *fqn, const struct pickle_value *info)
{
    struct stored_item item;
    torch_state_note(r->state, fqn);
    if (!torch_state_handles(fqn)) return STATUS_OK;
    TRY(find_item(r, fqn, info, &item));
    TRY_PREFIX(torch_state_read(r->state, fqn, item.bytes, item.size), "%s", r->path);
    return STATUS_OK;
}

static enum status add_entry(struct dcp_reader *r, const char *fqn,
                             const struct pickle_value *offset, const struct pickle_value *info)
{
    struct tensor_name name;
    bool bytes = !offset || offset->kind == PICKLE_IS_NONE;
    bool known = tensor_name_parse(fqn, &name);
    if (!bytes && !known && !tensor_name_is_ignored(fqn))
        FAIL(DATA, "%s: tensor %s does not belong to a Llama", r->path, fqn);
    if (!bytes && known && (name.kind != TENSOR_WEIGHT) == (r->state != NULL))
        TRY(add_tensor(r, &name, fqn, offset, info));
    if (r->state) TRY(add_state(r, fqn, info));
    return STATUS_OK;
}

/* Adds what storage_data lists: the weights, or the moments and the training state. */
static enum status add_entries(struct dcp_reader *r, const struct pickle_value *root)
{
    const struct pickle_value *items = pickle_field(root, PICKLE_METADATA, "storage_data");
    if (!items || items->kind != PICKLE_IS_DICT)
        FAIL(DATA, "%s: .metadata has no storage_data", r->path);
    for (size_t i = 0; i < items->count; i += 2) {
        const struct pickle_value *key = items->items[i];
        const struct pickle_value *name = pickle_field(key, PICKLE_METADATA_INDEX, "fqn");
        const struct pickle_value *offset = pickle_field(key, PICKLE_METADATA_INDEX, "offset");
        if (!name || name->kind != PICKLE_IS_STRING || name->len >= TORCH_NAME)
            FAIL(DATA, "%s: .metadata has an entry without a name (FQN)", r->path);
        char *fqn = heap_string(name->text, name->len);
        enum status st = add_entry(r, fqn, offset, items->items[i + 1]);
        free(fqn);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status read_directory(struct tensor_slices *slices, const char *path,
                                  const struct model_shape *shape, struct torch_state *state)
{
    struct dcp_reader r = {.slices = slices, .path = path, .state = state};
    struct text metadata = {0};
    struct pickle pickle = {0};
    char *file = file_join(path, ".metadata");
    size_t used;
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){.path = heap_string(path, strlen(path))};
    slices->head_dim = shape && !shape->qk_norm ? shape->K : 0; /* as torch_model.c's our_row */
    TRY_OUT(file_read(file, MAX_METADATA, &metadata));
    TRY_OUT(pickle_parse(&pickle, (unsigned char *)metadata.data, metadata.len, file, &used));
    TRY_OUT(add_entries(&r, pickle.root));
    TRY_OUT(tensor_slices_finish(slices));
out:
    for (size_t i = 0; i < r.count; i++) free(r.names[i]);
    free(r.names);
    pickle_release(&pickle);
    text_release(&metadata);
    free(file);
    return tensor_slices_opened(slices, st);
}

enum status dcp_open(struct tensor_slices *slices, const char *path,
                     const struct model_shape *shape)
{
    TRY(read_directory(slices, path, shape, NULL));
    return STATUS_OK;
}

enum status dcp_open_moments(struct tensor_slices *slices, const char *path,
                             const struct model_shape *shape, struct torch_state *state)
{
    torch_state_init(state);
    TRY(read_directory(slices, path, shape, state));
    if (!slices->count && state->has_other_moments)
        log_line(
            LOG_WARN,
            "%s: ignoring the optimizer's moments: they are not keyed by the names of the weights",
            path);
    enum status st = slices->count ? torch_state_finish(state, path) : STATUS_OK;
    return tensor_slices_opened(slices, st);
}
