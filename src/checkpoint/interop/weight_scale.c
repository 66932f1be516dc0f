// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/weight_scale.h"

#include <string.h>

enum { BLOCK = 128 };

bool weight_scale_is_needed(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F8_E4M3 || dtype == SAFETENSORS_F8_E5M2;
}

static uint64_t blocks_of(uint64_t size) { return (size + BLOCK - 1) / BLOCK; }

enum status weight_scale_open(struct weight_scale *s, const struct safetensors_tensor *weight,
                              const struct safetensors *file,
                              const struct safetensors_tensor *scales)
{
    bool is_matrix = weight->num_dims == 2;
    uint64_t rows = (uint64_t)weight->shape[0];
    uint64_t columns = is_matrix ? (uint64_t)weight->shape[1] : 1;
    uint64_t scale_rows = scales->num_dims > 0 ? (uint64_t)scales->shape[0] : 1;
    uint64_t scale_columns = scales->num_dims > 1 ? (uint64_t)scales->shape[1] : 1;
    if (weight->num_dims > 2)
        FAIL(UNSUPPORTED, "%s: tensor %s: FP8 weights of %d dimensions are not supported",
             file->path, weight->name, weight->num_dims);
    *s = (struct weight_scale){.file = file, .tensor = scales, .columns = columns, .blocks = 1};
    s->block_rows = rows ? rows : 1, s->block_columns = columns ? columns : 1;
    if (weight_scale_is_needed(scales->dtype))
        FAIL(DATA, "%s: tensor %s: scales must be F32, BF16 or F16, not %s", file->path,
             scales->name, safetensors_dtype_name(scales->dtype));
    if (scales->num_dims <= 2 && scales->elements == 1) return STATUS_OK;
    if (scales->num_dims <= 2 && scale_rows == rows && scale_columns == 1) {
        s->block_rows = 1;
        return STATUS_OK;
    }
    if (is_matrix && scales->num_dims == 2 && scale_rows == blocks_of(rows) &&
        scale_columns == blocks_of(columns)) {
        s->block_rows = s->block_columns = BLOCK;
        s->blocks = scale_columns;
        return STATUS_OK;
    }
    FAIL(DATA,
         "%s: tensor %s has shape [%llu, %llu], which does not fit the weight's [%llu, %llu]: "
         "expected one scale, one for each row, or one for each block of %d x %d",
         file->path, scales->name, (unsigned long long)scale_rows,
         (unsigned long long)scale_columns, (unsigned long long)rows, (unsigned long long)columns,
         BLOCK, BLOCK);
}

enum status weight_scale_apply(const struct weight_scale *s, uint64_t first, uint64_t count,
                               float *values)
{
    for (uint64_t at = first, end = first + count; at < end;) {
        uint64_t row = at / s->columns, column = at % s->columns;
        uint64_t index = row / s->block_rows * s->blocks + column / s->block_columns;
        uint64_t stop = row * s->columns + (column / s->block_columns + 1) * s->block_columns;
        float scale;
        if (stop > (row + 1) * s->columns) stop = (row + 1) * s->columns;
        if (stop > end) stop = end;
        TRY(safetensors_read_part(s->file, s->tensor, index, 1, &scale));
        for (; at < stop; at++) values[at - first] *= scale;
    }
    return file_map_check(&s->file->map);
}

bool weight_scale_is_name(const char *name, size_t *weight_len)
{
    static const char *const of_weights[] = {"_scale_inv", "_scale"};
    static const char *const of_others[] = {".input_scale", ".output_scale", ".q_scale",
                                            ".k_scale",     ".v_scale",      ".activation_scale"};
    size_t len = strlen(name);
    *weight_len = 0;
    for (size_t i = 0; i < sizeof of_others / sizeof *of_others; i++) {
        size_t n = strlen(of_others[i]);
        if (len > n && !strcmp(name + len - n, of_others[i])) return true;
    }
    for (size_t i = 0; i < sizeof of_weights / sizeof *of_weights; i++) {
        size_t n = strlen(of_weights[i]);
        if (len <= n || strcmp(name + len - n, of_weights[i])) continue;
        *weight_len = len - n;
        return true;
    }
    return false;
}
