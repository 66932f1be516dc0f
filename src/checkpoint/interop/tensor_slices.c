// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_slices.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* If `name` starts with `prefix`, skips it. */
static bool skip_prefix(const char **name, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*name, prefix, len)) return false;
    *name += len;
    return true;
}

/* Skips a layer number.  Leading zeros are rejected, so that no two names mean the same tensor. */
static bool parse_layer(const char **name, int *layer)
{
    const char *at = *name;
    if (!isdigit((unsigned char)*at) || (*at == '0' && at[1] != '.')) return false;
    for (*layer = 0; isdigit((unsigned char)*at); at++) {
        if (*layer > 1000000) return false;
        *layer = 10 * *layer + *at - '0';
    }
    *name = at;
    return true;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = strlen(name), n = strlen(suffix);
    return len >= n && !strcmp(name + len - n, suffix);
}

/* torchtitan's newer names, and those of llama.params. */
static const char *const renamed[][2] = {
    {"attention.qkv_linear.wq.weight", "attention.wq.weight"},
    {"attention.qkv_linear.wk.weight", "attention.wk.weight"},
    {"attention.qkv_linear.wv.weight", "attention.wv.weight"},
    {"lm_head.weight", "output.weight"},
};
enum { NUM_RENAMED = sizeof renamed / sizeof *renamed };

static const char *to_older_name(const char *name)
{
    for (size_t i = 0; i < NUM_RENAMED; i++)
        if (!strcmp(name, renamed[i][0])) return renamed[i][1];
    return name;
}

char *tensor_name_torchtitan(const char *name)
{
    struct text out = {0};
    for (size_t i = 0; i < NUM_RENAMED && !out.len; i++)
        if (ends_with(name, renamed[i][1]))
            text_addf(&out, "%.*s%s", (int)(strlen(name) - strlen(renamed[i][1])), name,
                      renamed[i][0]);
    if (!out.len) text_adds(&out, name);
    return out.data;
}

/* What follows a weight's name. */
static const char *const suffixes[] = {
    [TENSOR_WEIGHT] = "", [TENSOR_EXP_AVG] = ".exp_avg", [TENSOR_EXP_AVG_SQ] = ".exp_avg_sq"};

const char *tensor_name_suffix(enum tensor_kind kind) { return suffixes[kind]; }

enum tensor_kind tensor_name_kind(const char *name)
{
    for (int p = 1; p < 3; p++)
        if (ends_with(name, suffixes[p])) return (enum tensor_kind)p;
    return TENSOR_WEIGHT;
}

bool tensor_name_parse(const char *name, struct tensor_name *out)
{
    char stem[TORCH_NAME];
    bool moment = skip_prefix(&name, "optimizer.state.");
    size_t len = strlen(name);
    *out = (struct tensor_name){.layer = -1};
    if (moment) out->kind = tensor_name_kind(name);
    if ((out->kind != TENSOR_WEIGHT) != moment || len >= sizeof stem) return false;
    len -= strlen(suffixes[out->kind]);
    memcpy(stem, name, len);
    stem[len] = '\0';
    name = stem;
    skip_prefix(&name, "model.");
    if (skip_prefix(&name, "layers.")) {
        if (!parse_layer(&name, &out->layer) || *name++ != '.') return false;
    }
    for (int id = 0; id < PARAM_COUNT; id++) {
        const char *form = params[id].name;
        if (skip_prefix(&form, "layers.%d.") != (out->layer >= 0) ||
            strcmp(to_older_name(name), form))
            continue;
        out->id = (enum param_id)id;
        return true;
    }
    return false;
}

bool tensor_name_is_ignored(const char *name)
{
    static const char *const prefixes[] = {"optimizer.", "lr_scheduler.", "train_state.",
                                           "dataloader."};
    skip_prefix(&name, "model.");
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) return true;
    return !strcmp(name, "rope.freqs") || !strcmp(name, "freqs_cis") ||
           ends_with(name, "inner_attention.rope.freqs");
}

bool tensor_name_matches(const char *form, const char *name, int *layer)
{
    const char *number = strstr(form, "%d");
    size_t front = number ? (size_t)(number - form) : 0;
    *layer = -1;
    if (!number) return !strcmp(form, name);
    if (strncmp(form, name, front)) return false;
    name += front;
    return parse_layer(&name, layer) && !strcmp(number + 2, name);
}

bool tensor_name_parse_hf(const char *name, struct tensor_name *out)
{
    *out = (struct tensor_name){0};
    for (int id = 0; id < PARAM_COUNT; id++)
        if (tensor_name_matches(params[id].hf_name, name, &out->layer)) {
            out->id = (enum param_id)id;
            return true;
        }
    return false;
}

bool tensor_name_is_ignored_hf(const char *name)
{
    return strstr(name, "rotary_emb.inv_freq") != NULL;
}

enum status tensor_slices_map(struct tensor_slices *p, const char *path,
                              const struct file_map **map)
{
    p->maps = heap_grow(p->maps, p->num_maps + 1, sizeof *p->maps);
    p->files = heap_grow(p->files, p->num_maps + 1, sizeof *p->files);
    p->files[p->num_maps] = heap_string(path, strlen(path));
    p->maps[p->num_maps] = heap(sizeof **p->maps);
    *map = p->maps[p->num_maps++];
    TRY(file_map_open(p->maps[p->num_maps - 1], path));
    return STATUS_OK;
}

static bool same_name(const struct tensor_name *a, const struct tensor_name *b)
{
    return a->id == b->id && a->layer == b->layer && a->kind == b->kind;
}

/* Searches backwards, since slices of one tensor are added in succession. */
static struct sliced_tensor *find_tensor(const struct tensor_slices *p,
                                         const struct tensor_name *name)
{
    for (size_t i = p->count; i-- > 0;)
        if (same_name(&p->tensors[i].name, name)) return &p->tensors[i];
    return NULL;
}

const struct sliced_tensor *tensor_slices_find(const struct tensor_slices *p,
                                               const struct tensor_name *name)
{
    return find_tensor(p, name);
}

static struct sliced_tensor *add_tensor(struct tensor_slices *p, const struct tensor_name *name,
                                        int num_dims)
{
    if (p->count == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        p->tensors = heap_grow(p->tensors, p->room, sizeof *p->tensors);
    }
    p->tensors[p->count] = (struct sliced_tensor){.name = *name, .num_dims = num_dims};
    return &p->tensors[p->count++];
}

bool tensor_slices_supports(enum safetensors_dtype d)
{
    return d == SAFETENSORS_F32 || d == SAFETENSORS_BF16 || d == SAFETENSORS_F16 ||
           d == SAFETENSORS_F64;
}

enum status tensor_slices_add(struct tensor_slices *p, const struct tensor_name *name,
                              const struct torch_tensor *t, const struct file_map *map, int64_t row,
                              int64_t column)
{
    int dims = params[name->id].axes[1] ? 2 : 1;
    if (t->num_dims != dims || !tensor_slices_supports(t->dtype))
        FAIL(DATA, "%s: %s has %d dimensions and dtype %s, expected %d and F32, BF16, F16 or F64",
             p->path, t->name, t->num_dims, safetensors_dtype_name(t->dtype), dims);
    struct sliced_tensor *to = find_tensor(p, name);
    if (!to) to = add_tensor(p, name, dims);
    struct tensor_slice one = {.map = map,
                               .data = t->data,
                               .dtype = t->dtype,
                               .row = row,
                               .column = column,
                               .rows = t->shape[0],
                               .columns = dims > 1 ? t->shape[1] : 1,
                               .row_stride = t->strides[0],
                               .column_stride = dims > 1 ? t->strides[1] : 1};
    int64_t rows, columns;
    if (__builtin_add_overflow(row, one.rows, &rows) ||
        __builtin_add_overflow(column, one.columns, &columns))
        FAIL(DATA, "%s: %s has an invalid offset", p->path, t->name);
    if (!one.rows || !one.columns) return STATUS_OK;
    if (rows > to->rows) to->rows = rows;
    if (columns > to->columns) to->columns = columns;
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 1;
        to->all = heap_grow(to->all, to->room, sizeof *to->all);
    }
    to->all[to->count++] = one;
    return STATUS_OK;
}

/* Checks the total area only; overlaps are found when elements are read. */
enum status tensor_slices_finish(struct tensor_slices *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct sliced_tensor *t = &p->tensors[i];
        const struct tensor_place place = {.id = t->name.id, .layer = t->name.layer};
        int64_t whole, area, sum = 0;
        char name[96];
        bool fits = !__builtin_mul_overflow(t->rows, t->columns, &whole);
        for (size_t k = 0; k < t->count && fits; k++)
            fits = !__builtin_mul_overflow(t->all[k].rows, t->all[k].columns, &area) &&
                   !__builtin_add_overflow(sum, area, &sum);
        tensor_place_name(&place, false, name);
        if (!fits || sum != whole)
            FAIL(DATA, "%s: the %zu slices of %s%s do not cover a tensor of shape [%lld, %lld]",
                 p->path, t->count, name, suffixes[t->name.kind], (long long)t->rows,
                 (long long)t->columns);
        struct text called = {0};
        tensor_place_name(&place, true, name);
        text_addf(&called, "%s%s", name, suffixes[t->name.kind]);
        t->hf_name = called.data;
    }
    return STATUS_OK;
}

void tensor_slices_release(struct tensor_slices *p)
{
    for (size_t i = 0; i < p->num_maps; i++) {
        file_map_close(p->maps[i]);
        free(p->maps[i]), free(p->files[i]);
    }
    for (size_t i = 0; i < p->count; i++) free(p->tensors[i].all), free(p->tensors[i].hf_name);
    free(p->maps), free(p->files), free(p->tensors), free(p->path);
    *p = (struct tensor_slices){0};
}

/* Row of the file that holds our row. */
static int64_t file_row(const struct tensor_slices *p, const struct sliced_tensor *t, int64_t row)
{
    int64_t K = p->head_dim;
    if (!K || (t->name.id != PARAM_attn_q && t->name.id != PARAM_attn_k)) return row;
    int64_t j = row % K / (K / 2), i = row % (K / 2);
    return row / K * K + 2 * i + j;
}

/* Reads columns [from, to) of a row that slice `p` contains. */
static void read_run(const struct tensor_slice *p, int64_t row, int64_t from, int64_t to,
                     float *out)
{
    size_t each = safetensors_dtype_bytes(p->dtype);
    const unsigned char *at =
        p->data +
        (size_t)((row - p->row) * p->row_stride + (from - p->column) * p->column_stride) * each;
    if (p->column_stride == 1) {
        safetensors_to_f32(p->dtype, at, (size_t)(to - from), out);
        return;
    }
    for (int64_t c = from; c < to; c++, at += (size_t)p->column_stride * each)
        safetensors_to_f32(p->dtype, at, 1, out++);
}

/* Reads columns [from, to) of a file row; *hint is the slice that held the previous ones. */
static enum status read_row(const struct tensor_slices *p, const struct sliced_tensor *t,
                            int64_t row, int64_t from, int64_t to, size_t *hint, float *out)
{
    while (from < to) {
        const struct tensor_slice *has = NULL;
        for (size_t k = 0; k < t->count && !has; k++) {
            const struct tensor_slice *one = &t->all[(*hint + k) % t->count];
            if (row < one->row || row - one->row >= one->rows || from < one->column ||
                from - one->column >= one->columns)
                continue;
            has = one;
            *hint = (*hint + k) % t->count;
        }
        if (!has)
            FAIL(DATA, "%s: no slice of tensor %s%s holds row %lld", p->path,
                 params[t->name.id].name, suffixes[t->name.kind], (long long)row);
        int64_t end = has->column + has->columns < to ? has->column + has->columns : to;
        read_run(has, row, from, end, out);
        out += end - from;
        from = end;
    }
    return STATUS_OK;
}

enum status tensor_slices_read(const struct tensor_slices *p, const struct sliced_tensor *t,
                               size_t first, size_t count, float *out)
{
    size_t hint = 0, columns = (size_t)t->columns;
    for (size_t at = first, n; at < first + count; at += n, out += n) {
        size_t column = at % columns, left = first + count - at;
        n = columns - column < left ? columns - column : left;
        int64_t row = file_row(p, t, (int64_t)(at / columns));
        TRY(read_row(p, t, row, (int64_t)column, (int64_t)(column + n), &hint, out));
    }
    return STATUS_OK;
}

/* Whole heads, since their rows are interleaved. */
void tensor_slices_forget(const struct tensor_slices *p, const struct sliced_tensor *t,
                          size_t first, size_t count)
{
    int64_t K = p->head_dim ? p->head_dim : 1;
    int64_t begin = (int64_t)(first / (size_t)t->columns) / K * K;
    int64_t end = ((int64_t)((first + count - 1) / (size_t)t->columns) / K + 1) * K;
    for (size_t k = 0; k < t->count; k++) {
        const struct tensor_slice *one = &t->all[k];
        int64_t from = begin > one->row ? begin - one->row : 0;
        int64_t to = end - one->row < one->rows ? end - one->row : one->rows;
        if (from >= to) continue;
        uint64_t each = safetensors_dtype_bytes(one->dtype) * (uint64_t)one->row_stride;
        uint64_t data = (uint64_t)(one->data - one->map->data);
        file_map_forget(one->map, data + (uint64_t)from * each, data + (uint64_t)to * each);
    }
}
