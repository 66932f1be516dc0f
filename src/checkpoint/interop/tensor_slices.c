// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_slices.h"

#include <stdlib.h>

enum status tensor_slices_map(struct tensor_slices *s, const char *path,
                              const struct file_map **map)
{
    s->maps = heap_grow(s->maps, s->num_maps + 1, sizeof *s->maps);
    s->files = heap_grow(s->files, s->num_maps + 1, sizeof *s->files);
    s->files[s->num_maps] = heap_strdup(path);
    s->maps[s->num_maps] = heap(sizeof **s->maps);
    *map = s->maps[s->num_maps++];
    TRY(file_map_open(s->maps[s->num_maps - 1], path));
    return STATUS_OK;
}

static bool same_name(const struct tensor_name *a, const struct tensor_name *b)
{
    return a->id == b->id && a->layer == b->layer && a->kind == b->kind;
}

/* Searches backwards, since slices of one tensor are added in succession. */
static struct sliced_tensor *find_tensor(const struct tensor_slices *s,
                                         const struct tensor_name *name)
{
    for (size_t i = s->count; i-- > 0;)
        if (same_name(&s->tensors[i].name, name)) return &s->tensors[i];
    return NULL;
}

const struct sliced_tensor *tensor_slices_find(const struct tensor_slices *s,
                                               const struct tensor_name *name)
{
    return find_tensor(s, name);
}

static struct sliced_tensor *add_tensor(struct tensor_slices *s, const struct tensor_name *name,
                                        int num_dims)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->tensors = heap_grow(s->tensors, s->capacity, sizeof *s->tensors);
    }
    s->tensors[s->count] = (struct sliced_tensor){.name = *name, .num_dims = num_dims};
    return &s->tensors[s->count++];
}

bool tensor_slices_supports(enum safetensors_dtype d)
{
    return d == SAFETENSORS_F32 || d == SAFETENSORS_BF16 || d == SAFETENSORS_F16 ||
           d == SAFETENSORS_F64;
}

enum status tensor_slices_add(struct tensor_slices *s, const struct tensor_name *name,
                              const struct file_slice *slice)
{
    const struct torch_tensor *t = slice->tensor;
    int dims = params[name->id].axes[1] ? 2 : 1;
    if (t->num_dims != dims || !tensor_slices_supports(t->dtype))
        FAIL(DATA, "%s: %s has %d dimensions and dtype %s, expected %d and F32, BF16, F16 or F64",
             s->path, t->name, t->num_dims, safetensors_dtype_name(t->dtype), dims);
    struct sliced_tensor *to = find_tensor(s, name);
    if (!to) to = add_tensor(s, name, dims);
    struct tensor_slice one = {.map = slice->map,
                               .data = t->data,
                               .dtype = t->dtype,
                               .row = slice->row,
                               .column = slice->column,
                               .rows = t->shape[0],
                               .columns = dims > 1 ? t->shape[1] : 1,
                               .row_stride = t->strides[0],
                               .column_stride = dims > 1 ? t->strides[1] : 1};
    int64_t rows, columns;
    if (__builtin_add_overflow(one.row, one.rows, &rows) ||
        __builtin_add_overflow(one.column, one.columns, &columns))
        FAIL(DATA, "%s: %s has an invalid offset", s->path, t->name);
    if (!one.rows || !one.columns) return STATUS_OK;
    if (rows > to->rows) to->rows = rows;
    if (columns > to->columns) to->columns = columns;
    if (to->count == to->capacity) {
        to->capacity = to->capacity ? 2 * to->capacity : 1;
        to->all = heap_grow(to->all, to->capacity, sizeof *to->all);
    }
    to->all[to->count++] = one;
    return STATUS_OK;
}

/* Checks the total area only; overlaps are found when elements are read. */
enum status tensor_slices_finish(struct tensor_slices *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct sliced_tensor *t = &s->tensors[i];
        const struct tensor_slot slot = {.id = t->name.id, .layer = t->name.layer};
        int64_t whole, area, sum = 0;
        char name[96];
        bool fits = !__builtin_mul_overflow(t->rows, t->columns, &whole);
        for (size_t k = 0; k < t->count && fits; k++)
            fits = !__builtin_mul_overflow(t->all[k].rows, t->all[k].columns, &area) &&
                   !__builtin_add_overflow(sum, area, &sum);
        layout_tensor_name(&slot, false, name);
        if (!fits || sum != whole)
            FAIL(DATA, "%s: the %zu slices of %s%s do not cover a tensor of shape [%lld, %lld]",
                 s->path, t->count, name, tensor_name_suffix(t->name.kind), (long long)t->rows,
                 (long long)t->columns);
        struct text full = {0};
        layout_tensor_name(&slot, true, name);
        text_addf(&full, "%s%s", name, tensor_name_suffix(t->name.kind));
        t->hf_name = full.data;
    }
    return STATUS_OK;
}

enum status tensor_slices_opened(struct tensor_slices *s, enum status st)
{
    for (size_t i = 0; i < s->num_maps; i++) {
        enum status torn = file_map_check(s->maps[i]);
        if (torn) st = torn;
    }
    if (st) tensor_slices_release(s);
    return st;
}

void tensor_slices_release(struct tensor_slices *s)
{
    for (size_t i = 0; i < s->num_maps; i++) {
        file_map_close(s->maps[i]);
        free(s->maps[i]), free(s->files[i]);
    }
    for (size_t i = 0; i < s->count; i++) free(s->tensors[i].all), free(s->tensors[i].hf_name);
    free(s->maps), free(s->files), free(s->tensors), free(s->path);
    *s = (struct tensor_slices){0};
}

static bool has_rotary_rows(enum param_id id)
{
    return id == PARAM_attn_q || id == PARAM_attn_k || id == PARAM_q_bias || id == PARAM_k_bias;
}

/* Row of the file that holds our row. */
static int64_t file_row(const struct tensor_slices *s, const struct sliced_tensor *t, int64_t row)
{
    int64_t K = s->head_dim;
    if (!K || !has_rotary_rows(t->name.id)) return row;
    int64_t j = row % K / (K / 2), i = row % (K / 2);
    return row / K * K + 2 * i + j;
}

/* Columns [from, to) of a file row. */
struct row_range {
    int64_t row, from, to;
};

/* Reads a range that the slice contains. */
static void read_run(const struct tensor_slice *slice, struct row_range r, float *out)
{
    size_t element_bytes = safetensors_dtype_bytes(slice->dtype);
    int64_t offset =
        (r.row - slice->row) * slice->row_stride + (r.from - slice->column) * slice->column_stride;
    const unsigned char *at = slice->data + (size_t)offset * element_bytes;
    if (slice->column_stride == 1) {
        safetensors_to_f32(slice->dtype, at, (size_t)(r.to - r.from), out);
        return;
    }
    for (int64_t c = r.from; c < r.to; c++, at += (size_t)slice->column_stride * element_bytes)
        safetensors_to_f32(slice->dtype, at, 1, out++);
}

static bool contains(const struct tensor_slice *slice, int64_t row, int64_t column)
{
    return row >= slice->row && row - slice->row < slice->rows && column >= slice->column &&
           column - slice->column < slice->columns;
}

/* *hint is the slice that held the previous elements. */
static enum status read_row(const struct tensor_slices *s, const struct sliced_tensor *t,
                            struct row_range r, size_t *hint, float *out)
{
    while (r.from < r.to) {
        const struct tensor_slice *slice = NULL;
        for (size_t k = 0; k < t->count && !slice; k++) {
            size_t i = (*hint + k) % t->count;
            if (!contains(&t->all[i], r.row, r.from)) continue;
            slice = &t->all[i];
            *hint = i;
        }
        if (!slice)
            FAIL(DATA, "%s: no slice of tensor %s%s holds row %lld", s->path,
                 params[t->name.id].name, tensor_name_suffix(t->name.kind), (long long)r.row);
        int64_t end = slice->column + slice->columns < r.to ? slice->column + slice->columns : r.to;
        read_run(slice, (struct row_range){r.row, r.from, end}, out);
        out += end - r.from;
        r.from = end;
    }
    return STATUS_OK;
}

/* Slices of a file are added in succession. */
enum status tensor_slices_check(const struct sliced_tensor *t)
{
    for (size_t k = 0; k < t->count; k++)
        if (!k || t->all[k].map != t->all[k - 1].map) TRY(file_map_check(t->all[k].map));
    return STATUS_OK;
}

enum status tensor_slices_read(const struct tensor_slices *s, const struct sliced_tensor *t,
                               size_t first, size_t count, float *out)
{
    size_t hint = 0, columns = (size_t)t->columns;
    for (size_t at = first, n; at < first + count; at += n, out += n) {
        size_t column = at % columns, left = first + count - at;
        n = columns - column < left ? columns - column : left;
        const struct row_range r = {file_row(s, t, (int64_t)(at / columns)), (int64_t)column,
                                    (int64_t)(column + n)};
        TRY(read_row(s, t, r, &hint, out));
    }
    return STATUS_OK;
}

/* Whole heads, since their rows are interleaved. */
void tensor_slices_forget(const struct tensor_slices *s, const struct sliced_tensor *t,
                          size_t first, size_t count)
{
    int64_t K = s->head_dim ? s->head_dim : 1;
    int64_t begin = (int64_t)(first / (size_t)t->columns) / K * K;
    int64_t end = ((int64_t)((first + count - 1) / (size_t)t->columns) / K + 1) * K;
    for (size_t k = 0; k < t->count; k++) {
        const struct tensor_slice *slice = &t->all[k];
        int64_t from = begin > slice->row ? begin - slice->row : 0;
        int64_t to = end - slice->row < slice->rows ? end - slice->row : slice->rows;
        if (from >= to) continue;
        uint64_t row_bytes = safetensors_dtype_bytes(slice->dtype) * (uint64_t)slice->row_stride;
        uint64_t data = (uint64_t)(slice->data - slice->map->data);
        file_map_evict(slice->map, data + (uint64_t)from * row_bytes,
                       data + (uint64_t)to * row_bytes);
    }
}
