// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp.h"

#include "base/file.h"
#include "checkpoint/interop/dcp_directory.h"

#include <stdlib.h>

bool dcp_detect(const char *path) { return file_exists_in(path, ".metadata"); }

struct dcp_reader {
    struct dcp_directory directory;
    struct tensor_slices *slices;
    const char *path;
    struct torch_state *state; /* NULL: read the weights; else the moments and the training state */
};

static enum status add_tensor(struct dcp_reader *r, const struct tensor_name *name,
                              const struct dcp_entry *e)
{
    struct torch_tensor t = {0};
    const struct file_map *map;
    int64_t offset[2] = {0};
    int dims = params[name->id].axes[1] ? 2 : 1;
    if (pickle_int_tuple(e->offset, 2, offset) != dims)
        FAIL(DATA, "%s: %s: expected an offset of %d dimensions", r->path, e->fqn, dims);
    TRY(dcp_directory_tensor(&r->directory, e, &t, &map));
    const struct file_slice slice = {&t, map, offset[0], offset[1]};
    enum status st = tensor_slices_add(r->slices, name, &slice);
    free(t.name);
    return st;
}

static enum status add_state(struct dcp_reader *r, const struct dcp_entry *e)
{
    struct dcp_bytes item;
    torch_state_note(r->state, e->fqn);
    if (!torch_state_handles(e->fqn)) return STATUS_OK;
    TRY(dcp_directory_find(&r->directory, e, &item));
    TRY_PREFIX(torch_state_read(r->state, e->fqn, item.bytes, item.size), "%s", r->path);
    return STATUS_OK;
}

/* Adds the entry if it is a weight, or, with `state`, a moment or part of the training state. */
static enum status add_entry(void *context, const struct dcp_entry *e)
{
    struct dcp_reader *r = context;
    struct tensor_name name;
    bool known = tensor_name_parse(e->fqn, &name);
    if (e->offset && !known && !tensor_name_is_ignored(e->fqn))
        FAIL(DATA, "%s: tensor %s does not belong to a Llama", r->path, e->fqn);
    if (e->offset && known && (name.kind != TENSOR_WEIGHT) == (r->state != NULL))
        TRY(add_tensor(r, &name, e));
    if (r->state) TRY(add_state(r, e));
    return STATUS_OK;
}

static enum status read_directory(struct tensor_slices *slices, const char *path,
                                  const struct model_shape *shape, struct torch_state *state)
{
    struct dcp_reader r = {.slices = slices, .path = path, .state = state};
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    slices->head_dim = shape && !shape->qk_norm ? shape->K : 0; /* as torch_model.c's our_row */
    TRY_OUT(dcp_directory_open(&r.directory, path, slices, false));
    TRY_OUT(dcp_directory_visit(&r.directory, add_entry, &r));
    TRY_OUT(tensor_slices_finish(slices));
out:
    dcp_directory_close(&r.directory);
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
    enum status st = slices->count ? torch_state_finish(state, path) : STATUS_OK;
    return tensor_slices_opened(slices, st);
}
