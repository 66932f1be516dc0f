// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/nxdt.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define LAYER "model.layers.%d."
const struct nxdt_fused nxdt_fused[NXDT_FUSED] = {
    {LAYER "self_attn.qkv_proj.weight_qkv", 3, {PARAM_attn_q, PARAM_attn_k, PARAM_attn_v}},
    {LAYER "self_attn.qkv_proj.weight", 3, {PARAM_attn_q, PARAM_attn_k, PARAM_attn_v}},
    {LAYER "self_attn.qkv_proj.weight_q", 1, {PARAM_attn_q}},
    {LAYER "self_attn.qkv_proj.weight_k", 1, {PARAM_attn_k}},
    {LAYER "self_attn.qkv_proj.weight_v", 1, {PARAM_attn_v}},
    {LAYER "mlp.gate_up_proj.weight", 2, {PARAM_mlp_gate, PARAM_mlp_up}},
};

int64_t nxdt_query_block(const struct nxdt_heads *h, int64_t rank)
{
    if (h->copies == 1 || h->adjacent) return rank;
    return rank % h->kv_heads * h->copies + rank / h->kv_heads;
}

int64_t nxdt_key_block(const struct nxdt_heads *h, int64_t rank)
{
    if (h->copies == 1) return rank;
    return h->adjacent ? rank / h->copies : rank % h->kv_heads;
}

/* One rank's slice of a tensor of the model. */
struct rank_tensor {
    struct tensor_name name;
    struct torch_tensor tensor; /* its name is owned */
    const struct file_map *map;
    int rank; /* tensor-parallel */
};

struct nxdt_reader {
    struct tensor_slices *slices;
    const struct model_shape *shape;
    const struct nxdt_files *files;
    struct rank_tensor *tensors; /* owned, as is `keys` */
    size_t count, capacity;
    struct rank_tensor **keys; /* [layer][k, v][rank] */
    struct nxdt_heads heads;
};

/* Adds a copy of `one`. */
static void add_rank_tensor(struct nxdt_reader *r, struct rank_tensor one)
{
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 64;
        r->tensors = heap_grow(r->tensors, r->capacity, sizeof *r->tensors);
    }
    one.tensor.name = heap_strdup(one.tensor.name);
    r->tensors[r->count++] = one;
}

/* Splits the rows of a rank's fused tensor.  Query heads are never replicated, so their number is
 * known. */
static bool split_rows(const struct nxdt_reader *r, const struct nxdt_fused *f, int64_t rows,
                       int64_t *parts)
{
    int64_t q = (int64_t)r->shape->H * r->shape->K / r->files->tp;
    parts[0] = rows / f->count;
    if (f->count == 3) parts[0] = q, parts[1] = parts[2] = (rows - q) / 2;
    if (f->count == 2) parts[1] = parts[0];
    return f->count == 1 || (f->count == 2 ? rows % 2 == 0 : rows > q && (rows - q) % 2 == 0);
}

/* `whole` is the fused tensor; of its name only the layer is set. */
static enum status add_fused(struct nxdt_reader *r, const struct nxdt_fused *f,
                             const struct rank_tensor *whole)
{
    const struct torch_tensor *t = &whole->tensor;
    int64_t rows[3], row = 0;
    if (t->num_dims != 2 || !split_rows(r, f, t->shape[0], rows))
        FAIL(DATA, "%s: rank %d of %d: the shape of %s does not fit the model", r->slices->path,
             whole->rank, r->files->tp, t->name);
    for (int i = 0; i < f->count; row += rows[i++]) {
        struct rank_tensor part = *whole;
        part.name.id = f->ids[i];
        part.tensor.shape[0] = rows[i];
        /* Within the tensor, which has been checked against its storage. */
        if (row && t->shape[1])
            part.tensor.data +=
                (size_t)row * (size_t)t->strides[0] * safetensors_dtype_bytes(t->dtype);
        add_rank_tensor(r, part);
    }
    return STATUS_OK;
}

/* The model may be wrapped in a module, or in a dict, called `model`. */
static const char *strip_model_prefix(const char *name)
{
    static const char model[] = "model.";
    const char *rest = name + sizeof model - 1;
    bool twice = !strncmp(name, model, sizeof model - 1) &&
                 (!strncmp(rest, model, sizeof model - 1) || !strncmp(rest, "lm_head.", 8));
    return twice ? rest : name;
}

static enum status add_tensor(struct nxdt_reader *r, const char *full_name,
                              const struct torch_tensor *t, const struct file_map *map, int rank)
{
    struct rank_tensor one = {.tensor = *t, .map = map, .rank = rank};
    const char *name = strip_model_prefix(full_name);
    one.tensor.name = (char *)(uintptr_t)name;
    for (int i = 0; i < NXDT_FUSED; i++)
        if (tensor_name_matches(nxdt_fused[i].form, name, &one.name.layer)) {
            TRY(add_fused(r, &nxdt_fused[i], &one));
            return STATUS_OK;
        }
    if (tensor_name_parse_hf(name, &one.name))
        add_rank_tensor(r, one);
    else if (!tensor_name_is_ignored_hf(name))
        FAIL(DATA, "%s: tensor %s does not belong to a Llama", r->slices->path, name);
    return STATUS_OK;
}

/* Adds a tensor that is stored in a file of its own (xser). */
static enum status add_referenced(struct nxdt_reader *r, const char *path,
                                  const struct torch_tensor *t, int rank)
{
    struct text file = {0};
    struct torch_archive a = {0};
    struct torch_tensors inside = {0};
    const struct file_map *map;
    enum status st = STATUS_OK;
    text_addf(&file, "%s.tensors/tensor_%lld.pt", path, (long long)t->reference);
    TRY_OUT(tensor_slices_map(r->slices, file.data, &map));
    TRY_OUT(torch_archive_open(&a, map->data, map->size, file.data));
    TRY_OUT(torch_archive_tensors(&a, &inside));
    if (inside.count != 1 || inside.all[0].name[0])
        FAIL_OUT(DATA, "%s: expected a single tensor", file.data);
    TRY_OUT(add_tensor(r, t->name, &inside.all[0], map, rank));
out:
    torch_tensors_release(&inside);
    torch_archive_close(&a);
    text_release(&file);
    return st;
}

static enum status open_file(struct nxdt_reader *r, const struct nxdt_file *f)
{
    struct torch_archive a = {0};
    struct torch_tensors tensors = {0};
    const struct file_map *map;
    enum status st = STATUS_OK;
    TRY_OUT(tensor_slices_map(r->slices, f->path, &map));
    TRY_OUT(torch_archive_open(&a, map->data, map->size, f->path));
    TRY_OUT(torch_archive_references(&a, &tensors));
    for (size_t i = 0; i < tensors.count; i++) {
        const struct torch_tensor *t = &tensors.all[i];
        TRY_OUT(t->data ? add_tensor(r, t->name, t, map, f->tp)
                        : add_referenced(r, f->path, t, f->tp));
    }
out:
    torch_tensors_release(&tensors);
    torch_archive_close(&a);
    return st;
}

static bool is_key_or_value(const struct rank_tensor *s)
{
    return s->name.id == PARAM_attn_k || s->name.id == PARAM_attn_v;
}

/* Derives how many ranks hold each key/value head from a rank's number of rows. */
static enum status count_copies(struct nxdt_reader *r)
{
    const struct rank_tensor *first = NULL;
    int64_t whole = (int64_t)r->shape->G * r->shape->K, T = r->files->tp, rows = 0;
    r->heads = (struct nxdt_heads){.ranks = T, .copies = 1, .kv_heads = r->shape->G};
    for (size_t i = 0; i < r->count && !first; i++)
        if (is_key_or_value(&r->tensors[i])) first = &r->tensors[i];
    if (!first) return STATUS_OK;
    if (first->tensor.num_dims == 2) rows = first->tensor.shape[0];
    int64_t copies = rows > 0 && rows <= whole ? rows * T / whole : 0;
    if (!copies || rows * T % whole)
        FAIL(DATA,
             "%s: %s has %lld rows on each of %lld ranks, but the model has %d key/value heads of "
             "%d rows",
             r->slices->path, first->tensor.name, (long long)rows, (long long)T, r->shape->G,
             r->shape->K);
    if (copies > 1 && copies * r->shape->G != T)
        FAIL(UNSUPPORTED,
             "%s: %lld ranks with %lld copies of each of %d key/value heads are not supported: "
             "each rank must have exactly one head",
             r->slices->path, (long long)T, (long long)copies, r->shape->G);
    r->heads.copies = copies;
    return STATUS_OK;
}

static struct rank_tensor **key_slot(struct nxdt_reader *r, const struct tensor_name *n, int rank)
{
    size_t kind = n->id == PARAM_attn_v, T = (size_t)r->files->tp;
    return &r->keys[((size_t)n->layer * 2 + kind) * T + (size_t)rank];
}

static enum status index_keys(struct nxdt_reader *r)
{
    r->keys = heap((size_t)r->shape->L * 2 * (size_t)r->files->tp * sizeof(struct rank_tensor *));
    for (size_t i = 0; i < r->count; i++) {
        struct rank_tensor *s = &r->tensors[i];
        if (!is_key_or_value(s)) continue;
        if (s->name.layer >= r->shape->L)
            FAIL(DATA, "%s: %s: the model has only %d layers", r->slices->path, s->tensor.name,
                 r->shape->L);
        struct rank_tensor **at = key_slot(r, &s->name, s->rank);
        if (*at) FAIL(DATA, "%s: rank %d has %s twice", r->slices->path, s->rank, s->tensor.name);
        *at = s;
    }
    return STATUS_OK;
}

static bool same_elements(const struct rank_tensor *a, const struct rank_tensor *b)
{
    const struct torch_tensor *x = &a->tensor, *y = &b->tensor;
    size_t each = safetensors_dtype_bytes(x->dtype);
    if (x->dtype != y->dtype || x->num_dims != 2 || y->num_dims != 2 ||
        x->shape[0] != y->shape[0] || x->shape[1] != y->shape[1])
        return false;
    bool rows = x->strides[1] == 1 && y->strides[1] == 1;
    size_t count = rows ? 1 : (size_t)x->shape[1], run = rows ? (size_t)x->shape[1] * each : each;
    for (int64_t row = 0; row < x->shape[0] && run; row++)
        for (size_t i = 0; i < count; i++) {
            const unsigned char *p = x->data + (size_t)(row * x->strides[0]) * each;
            const unsigned char *q = y->data + (size_t)(row * y->strides[0]) * each;
            p += i * (size_t)x->strides[1] * each, q += i * (size_t)y->strides[1] * each;
            if (memcmp(p, q, run)) return false;
        }
    return true;
}

static void forget_tensor(const struct rank_tensor *s)
{
    uint64_t at = (uint64_t)(s->tensor.data - s->map->data);
    uint64_t row = (uint64_t)s->tensor.strides[0] * safetensors_dtype_bytes(s->tensor.dtype);
    file_map_evict(s->map, at, at + (uint64_t)s->tensor.shape[0] * row);
}

/* Determines the head order by comparing the replicated key/value heads of different ranks. */
static enum status find_head_order(struct nxdt_reader *r)
{
    bool possible[2] = {true, true}; /* interleaved, adjacent */
    TRY(index_keys(r));
    if (r->heads.copies == 1) return STATUS_OK;
    for (size_t i = 0; i < r->count; i++) {
        const struct rank_tensor *s = &r->tensors[i];
        if (!is_key_or_value(s)) continue;
        for (int order = 0; order < 2; order++) {
            struct nxdt_heads h = r->heads;
            h.adjacent = order;
            int64_t block = nxdt_key_block(&h, s->rank);
            int first = (int)(order ? block * h.copies : block);
            const struct rank_tensor *other = *key_slot(r, &s->name, first);
            if (possible[order] && first != s->rank)
                possible[order] = other && same_elements(s, other);
        }
        if (!possible[0] && !possible[1])
            FAIL(DATA,
                 "%s: %s of rank %d differs from its copies on other ranks: each of %d key/value "
                 "heads should be on %lld of %lld ranks",
                 r->slices->path, s->tensor.name, s->rank, r->shape->G, (long long)r->heads.copies,
                 (long long)r->heads.ranks);
        forget_tensor(s);
    }
    r->heads.adjacent = !possible[0];
    return STATUS_OK;
}

/* Only the first of the ranks that hold the same slice is used. */
static bool is_first_copy(const struct nxdt_heads *h, const struct rank_tensor *s)
{
    int64_t block = nxdt_key_block(h, s->rank);
    if (!params[s->name.id].tp) return s->rank == 0;
    return !is_key_or_value(s) || s->rank == (h->adjacent ? block * h->copies : block);
}

static enum status add_slices(struct nxdt_reader *r, const struct rank_tensor *s)
{
    const struct param *kind = &params[s->name.id];
    const struct torch_tensor *t = &s->tensor;
    int column_axis = kind->tp && kind->axes[1] == kind->tp;
    int64_t block = s->rank, at = 0;
    if (!is_first_copy(&r->heads, s)) return STATUS_OK;
    if (s->name.id == PARAM_attn_q || s->name.id == PARAM_attn_out)
        block = nxdt_query_block(&r->heads, s->rank);
    if (is_key_or_value(s)) block = nxdt_key_block(&r->heads, s->rank);
    if (kind->tp && (t->num_dims != 2 || __builtin_mul_overflow(block, t->shape[column_axis], &at)))
        FAIL(DATA, "%s: %s has an invalid shape", r->slices->path, t->name);
    const struct file_slice slice = {t, s->map, column_axis ? 0 : at, column_axis ? at : 0};
    TRY(tensor_slices_add(r->slices, &s->name, &slice));
    return STATUS_OK;
}

static void release_reader(struct nxdt_reader *r)
{
    for (size_t i = 0; i < r->count; i++) free(r->tensors[i].tensor.name);
    free(r->tensors), free(r->keys);
}

enum status nxdt_open(struct tensor_slices *slices, const char *path,
                      const struct model_shape *shape)
{
    struct nxdt_files files = {0};
    struct nxdt_reader r = {.slices = slices, .shape = shape, .files = &files};
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    if (!shape)
        FAIL_OUT(
            MISSING,
            "%s: config.json is missing: NxD Training's files do not contain the number of heads",
            path);
    TRY_OUT(nxdt_files_open(&files, path));
    for (size_t i = 0; i < files.count; i++) TRY_OUT(open_file(&r, &files.all[i]));
    TRY_OUT(count_copies(&r));
    TRY_OUT(find_head_order(&r));
    for (size_t i = 0; i < r.count; i++) TRY_OUT(add_slices(&r, &r.tensors[i]));
    TRY_OUT(tensor_slices_finish(slices));
out:
    release_reader(&r);
    nxdt_files_release(&files);
    return tensor_slices_opened(slices, st);
}
