// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_dist.h"

#include "base/file.h"
#include "checkpoint/interop/dcp_directory.h"
#include "checkpoint/interop/megatron_buckets.h"

#include <stdlib.h>
#include <string.h>

#define COMMON_ENTRY "common_state/shard_0_1"

struct megatron_reader {
    struct dcp_directory directory;
    struct tensor_slices *slices;
    struct megatron_state state;
    struct megatron_sizes sizes;
    bool sources[MEGATRON_EXP_AVG_SQ + 1]; /* which tensors to add */
    size_t count_fp32;                     /* tensors that were added as float32 copies */
    struct megatron_buckets buckets;       /* pieces of the source that is being added */
    bool has_buckets, ignores_buckets;
    bool has_other_state; /* of the optimizer, in a form that is not read */
};

bool megatron_dist_detect(const char *path)
{
    return file_exists_in(path, ".metadata") && file_exists_in(path, "metadata.json");
}

/* The dict, or a list with it, which is how an entry of .metadata holds an object. */
static enum status read_common(struct megatron_state *m, const unsigned char *bytes, uint64_t size,
                               const char *name)
{
    struct torch_archive a = {0};
    enum status st = STATUS_OK;
    TRY_OUT(torch_archive_open_any(&a, bytes, size, name));
    const struct pickle_value *inside = pickle_item(a.pickle.root, 0);
    TRY_OUT(megatron_state_read(m, inside ? inside : a.pickle.root, name));
out:
    torch_archive_close(&a);
    return st;
}

static enum status read_common_file(struct megatron_state *m, const char *file)
{
    struct file_map map;
    TRY(file_map_open(&map, file));
    enum status st = file_map_check_after(&map, read_common(m, map.data, map.size, file));
    file_map_close(&map);
    return st;
}

static enum status find_common_entry(void *context, const struct dcp_entry *e)
{
    struct megatron_reader *r = context;
    struct dcp_bytes item;
    if (e->offset || strcmp(e->fqn, COMMON_ENTRY)) return STATUS_OK;
    TRY(dcp_directory_find(&r->directory, e, &item));
    megatron_state_release(&r->state); /* an earlier entry of that name */
    TRY_PREFIX(read_common(&r->state, item.bytes, item.size, e->fqn), "%s", r->directory.path);
    return STATUS_OK;
}

static enum status read_state(struct megatron_reader *r)
{
    char *file = file_join(r->directory.path, "common.pt");
    enum status st = file_exists(file) ? read_common_file(&r->state, file)
                                       : dcp_directory_visit(&r->directory, find_common_entry, r);
    free(file);
    return st;
}

static enum status open_reader(struct megatron_reader *r, struct tensor_slices *slices,
                               const char *path)
{
    *r = (struct megatron_reader){.slices = slices};
    megatron_state_init(&r->state);
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    TRY(dcp_directory_open(&r->directory, path, slices, true));
    TRY(read_state(r));
    return STATUS_OK;
}

static void close_reader(struct megatron_reader *r)
{
    megatron_state_release(&r->state);
    dcp_directory_close(&r->directory);
}

enum status megatron_dist_read_state(const char *path, struct megatron_state *m)
{
    struct megatron_reader r;
    struct tensor_slices slices;
    enum status st = open_reader(&r, &slices, path);
    *m = r.state;
    dcp_directory_close(&r.directory);
    st = tensor_slices_opened(&slices, st);
    if (!st) tensor_slices_release(&slices);
    return st;
}

/* A shard's position; `layer` is -1 without a layer. */
struct piece_position {
    int layer;
    int64_t row, column;
};

/* Adds a piece of the tensor of a layer unless the optimizer's float32 copy was added. */
static enum status add_piece(const struct megatron_reader *r, const struct megatron_tensor *n,
                             const struct torch_tensor *t, const struct file_map *map,
                             const struct piece_position *p)
{
    const struct file_slice piece = {t, map, p->row, p->column};
    const struct tensor_name first = megatron_tensor_first(n, p->layer);
    const struct sliced_tensor *have = tensor_slices_find(r->slices, &first);
    bool is_fp32 = have && (size_t)(have - r->slices->tensors) < r->count_fp32;
    if (n->source == MEGATRON_MODEL && is_fp32) return STATUS_OK;
    TRY(megatron_tensor_add(r->slices, &r->sizes, n, p->layer, &piece));
    return STATUS_OK;
}

/* A shard with the model's dimensions, after those of layers if the tensor is stacked. */
static enum status add_shard(const struct megatron_reader *r, const struct megatron_tensor *n,
                             const struct torch_tensor *t, const struct file_map *map,
                             const int64_t *offset)
{
    int dims = megatron_tensor_dims(n), skip = n->is_stacked;
    struct torch_tensor one = *t;
    one.num_dims = dims;
    for (int d = 0; d < dims; d++)
        one.shape[d] = t->shape[d + skip], one.strides[d] = t->strides[d + skip];
    int64_t layers = skip ? t->shape[0] : 1;
    if (skip && (layers > MEGATRON_MAX_LAYERS || offset[0] > MEGATRON_MAX_LAYERS - layers))
        FAIL(DATA, "%s: %s has layers beyond the limit", r->directory.path, t->name);
    bool empty = false;
    for (int d = 0; d < dims; d++) empty |= !one.shape[d];
    for (int64_t k = 0; k < layers && !empty; k++) {
        const struct piece_position p = {skip ? (int)(offset[0] + k) : n->layer, offset[skip],
                                         dims > 1 ? offset[skip + 1] : 0};
        if (k) one.data += (size_t)t->strides[0] * safetensors_dtype_bytes(t->dtype);
        TRY(add_piece(r, n, &one, map, &p));
    }
    return STATUS_OK;
}

/* The piece [offset[last], ...) of a flattened local tensor.  core before 0.14 stores a tensor of
 * shape [X, Y] that ranks hold as [x, y] as [X / x, Y / y, x y], split along the last axis. */
static enum status add_flattened(const struct megatron_reader *r, const struct megatron_tensor *n,
                                 const struct torch_tensor *t, const struct file_map *map,
                                 const int64_t *offset)
{
    int dims = megatron_tensor_dims(n), skip = n->is_stacked, last = dims + skip;
    int64_t whole[3] = {1, 1, 1}, grid[4] = {1, 1, 1, 1}, local[2] = {1, 1}, count = t->shape[last];
    bool fits = dcp_directory_shape(&r->directory, n->key, 3, whole) == last &&
                dcp_directory_shape(&r->directory, t->name, 4, grid) == last + 1;
    for (int d = 0; d < last; d++) fits &= t->shape[d] == 1 && grid[d] > 0;
    for (int d = 0; d < dims && fits; d++) {
        fits = whole[skip + d] % grid[skip + d] == 0 && offset[skip + d] < grid[skip + d];
        local[d] = fits ? whole[skip + d] / grid[skip + d] : 1;
    }
    int64_t x = local[0], y = local[1], at = offset[last], end;
    fits = fits && x > 0 && y > 0 && (!skip || offset[0] < MEGATRON_MAX_LAYERS) &&
           !__builtin_mul_overflow(x, y, &end) && at <= end && count <= end - at &&
           (count < 2 || t->strides[last] == 1);
    if (!fits)
        FAIL(DATA, "%s: %s is flattened, and its pieces do not fit the tensor %s",
             r->directory.path, t->name, n->key);
    struct torch_tensor rest = {
        .name = t->name, .dtype = t->dtype, .shape = {count}, .data = t->data};
    while (rest.shape[0]) {
        int64_t from = at + count - rest.shape[0];
        struct torch_tensor one = megatron_shard_next_flat(&rest, dims, y, from);
        const struct piece_position p = {skip ? (int)offset[0] : n->layer,
                                         offset[skip] * x + from / y,
                                         dims > 1 ? offset[skip + 1] * y + from % y : 0};
        TRY(add_piece(r, n, &one, map, &p));
    }
    return STATUS_OK;
}

static enum status add_tensor(struct megatron_reader *r, const struct megatron_tensor *n,
                              const struct dcp_entry *e)
{
    enum { MAX_DIMS = 4 };
    int64_t offset[MAX_DIMS] = {0};
    struct torch_tensor t = {0};
    const struct file_map *map;
    enum status st = STATUS_OK;
    int dims = megatron_tensor_dims(n) + n->is_stacked;
    int given = pickle_int_tuple(e->offset, MAX_DIMS, offset);
    TRY(dcp_directory_tensor(&r->directory, e, &t, &map));
    if (given != t.num_dims || (given != dims && given != dims + 1))
        FAIL_OUT(DATA, "%s: %s: expected an offset of %d dimensions", r->directory.path, e->fqn,
                 dims);
    st = given == dims ? add_shard(r, n, &t, map, offset) : add_flattened(r, n, &t, map, offset);
out:
    free(t.name);
    return st;
}

/* Whether an object has the moments of a distributed optimizer (dp_zero_gather_scatter). */
static bool is_gathered_state(const char *fqn)
{
    return strstr(fqn, "optimizer.distributed.") && strstr(fqn, ".param_state");
}

static enum status add_bucket_piece(struct megatron_reader *r, struct bucket_piece *p,
                                    const struct dcp_entry *e)
{
    if (pickle_int_tuple(e->offset, 1, &p->offset) != 1 ||
        dcp_directory_shape(&r->directory, e->fqn, 1, &p->total) != 1)
        FAIL(DATA, "%s: %s: expected one dimension", r->directory.path, e->fqn);
    TRY(dcp_directory_tensor(&r->directory, e, &p->tensor, &p->map));
    megatron_buckets_add(&r->buckets, p);
    return STATUS_OK;
}

static enum status add_entry(void *context, const struct dcp_entry *e)
{
    struct megatron_reader *r = context;
    struct megatron_tensor n;
    struct bucket_piece piece;
    enum megatron_source source;
    if (!e->offset) {
        r->has_other_state |= is_gathered_state(e->fqn);
        return STATUS_OK;
    }
    if (megatron_buckets_parse(e->fqn, &piece, &source)) {
        r->has_buckets = true;
        if (r->sources[source] && !r->ignores_buckets) TRY(add_bucket_piece(r, &piece, e));
        return STATUS_OK;
    }
    bool known = megatron_tensor_parse(e->fqn, &n);
    r->has_other_state |= !known && strstr(e->fqn, "optimizer.");
    if (!known && !megatron_tensor_is_ignored(e->fqn))
        FAIL(DATA, "%s: tensor %s does not belong to a Llama", r->directory.path, e->fqn);
    if (known && r->sources[n.source]) TRY(add_tensor(r, &n, e));
    return STATUS_OK;
}

static enum status add_source(struct megatron_reader *r, enum megatron_source source)
{
    memset(r->sources, 0, sizeof r->sources);
    r->sources[source] = true;
    enum status st = dcp_directory_visit(&r->directory, add_entry, r);
    if (!st) st = megatron_buckets_place(&r->buckets, source, &r->state, &r->sizes, r->slices);
    megatron_buckets_release(&r->buckets);
    return st;
}

/* Opens what `source` has by itself, from files that r->slices maps. */
static enum status open_source(struct megatron_reader *r, enum megatron_source source,
                               struct tensor_slices *slices)
{
    struct tensor_slices *mapped = r->slices;
    *slices =
        (struct tensor_slices){.path = heap_strdup(mapped->path), .head_dim = mapped->head_dim};
    r->slices = slices;
    enum status st = add_source(r, source);
    if (!st) st = tensor_slices_finish(slices);
    r->slices = mapped;
    return st;
}

/* UNSUPPORTED: buckets do not hold the parameters in the order that is expected, in which their
 * float32 copies are the model's weights. */
static enum status check_buckets(struct megatron_reader *r)
{
    struct tensor_slices copies = {0}, model = {0};
    enum status st = dcp_directory_visit(&r->directory, add_entry, r); /* sets has_buckets */
    if (st || !r->has_buckets) return st;
    TRY_OUT(open_source(r, MEGATRON_FP32, &copies));
    if (!copies.count)
        FAIL_OUT(UNSUPPORTED, "%s: the optimizer's buckets have no float32 copies", copies.path);
    TRY_OUT(open_source(r, MEGATRON_MODEL, &model));
    TRY_OUT(megatron_shard_check_copies(&copies, &model));
out:
    tensor_slices_release(&copies);
    tensor_slices_release(&model);
    return st;
}

/* If the buckets are in another order, their float32 copies are not read, and the weights are the
 * model's own. */
static enum status add_copies(struct megatron_reader *r)
{
    enum status st = check_buckets(r);
    r->ignores_buckets = st == STATUS_UNSUPPORTED;
    if (r->ignores_buckets)
        megatron_shard_warn_of_copies();
    else
        TRY(st);
    TRY(add_source(r, MEGATRON_FP32));
    r->count_fp32 = r->slices->count;
    return STATUS_OK;
}

enum status megatron_dist_open(struct tensor_slices *slices, const char *path,
                               const struct model_shape *shape)
{
    struct megatron_reader r;
    enum status st = open_reader(&r, slices, path);
    if (st) goto out;
    TRY_OUT(megatron_state_sizes(&r.state, shape, slices, &r.sizes));
    TRY_OUT(add_copies(&r));
    TRY_OUT(add_source(&r, MEGATRON_MODEL));
    TRY_OUT(tensor_slices_finish(slices));
out:
    close_reader(&r);
    return tensor_slices_opened(slices, st);
}

static enum status check_moments(const struct megatron_reader *r)
{
    const char *path = r->directory.path;
    if (!r->slices->count && r->has_other_state)
        FAIL(UNSUPPORTED,
             "%s: the optimizer's moments are not AdamW's, or stored as dp_zero_gather_scatter, "
             "which is not supported",
             path);
    if (r->slices->count && r->state.iteration < 0)
        FAIL(DATA, "%s: found optimizer moments, but no iteration", path);
    return STATUS_OK;
}

enum status megatron_dist_open_moments(struct tensor_slices *slices, const char *path,
                                       const struct model_shape *shape, struct torch_state *state)
{
    struct megatron_reader r;
    torch_state_init(state);
    enum status st = open_reader(&r, slices, path);
    if (st) goto out;
    TRY_OUT(megatron_state_sizes(&r.state, shape, slices, &r.sizes));
    TRY_OUT(check_buckets(&r));
    TRY_OUT(add_source(&r, MEGATRON_EXP_AVG));
    TRY_OUT(add_source(&r, MEGATRON_EXP_AVG_SQ));
    TRY_OUT(tensor_slices_finish(slices));
    TRY_OUT(check_moments(&r));
    if (slices->count)
        megatron_state_count(&r.state, state);
    else
        state->iteration = r.state.iteration;
out:
    close_reader(&r);
    return tensor_slices_opened(slices, st);
}
