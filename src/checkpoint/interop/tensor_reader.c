// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_reader.h"

void tensor_reader_close(struct tensor_reader *r)
{
    if (r->sliced) {
        if (r->end > r->begin)
            tensor_slices_forget(r->slices, r->sliced, r->begin, r->end - r->begin);
        r->begin = r->end = 0;
        return;
    }
    uint64_t data = r->file->data + r->tensor->begin;
    size_t element_bytes = safetensors_dtype_bytes(r->tensor->dtype);
    file_map_evict(&r->file->map, data + r->begin * element_bytes, data + r->end * element_bytes);
    r->begin = r->end = 0;
}

static enum status read_scaled(const struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out)
{
    enum { BUFFER = 4096 };
    float buffer[BUFFER];
    for (size_t at = 0; at < count; at += BUFFER) {
        size_t n = count - at < BUFFER ? count - at : BUFFER;
        void *to = (char *)out + at * dtype_bytes(dtype);
        TRY(safetensors_read_part(r->file, r->tensor, first + at, n, buffer));
        TRY(weight_scale_apply(&r->scale, first + at, n, buffer));
        safetensors_from_f32(buffer, n, dtype == F32 ? SAFETENSORS_F32 : SAFETENSORS_BF16, to);
    }
    return STATUS_OK;
}

static enum status read_safetensors(const struct tensor_reader *r, size_t first, size_t count,
                                    enum dtype dtype, void *out)
{
    if (r->scale.tensor) return read_scaled(r, first, count, dtype, out);
    if (weight_scale_is_needed(r->tensor->dtype))
        FAIL(DATA, "%s: tensor %s is %s, and its scales are missing or of another shape",
             r->file->path, r->tensor->name, safetensors_dtype_name(r->tensor->dtype));
    TRY(dtype == F32 ? safetensors_read_part(r->file, r->tensor, first, count, (float *)out)
                     : safetensors_read_part_bf16(r->file, r->tensor, first, count, (bf16 *)out));
    return STATUS_OK;
}

static enum status read_sliced(const struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out)
{
    enum { BUFFER = 4096 };
    float buffer[BUFFER];
    if (dtype == F32) {
        TRY(tensor_slices_read(r->slices, r->sliced, first, count, (float *)out));
        return STATUS_OK;
    }
    for (size_t at = 0; at < count; at += BUFFER) {
        size_t n = count - at < BUFFER ? count - at : BUFFER;
        TRY(tensor_slices_read(r->slices, r->sliced, first + at, n, buffer));
        safetensors_from_f32(buffer, n, SAFETENSORS_BF16, (bf16 *)out + at);
    }
    return STATUS_OK;
}

enum status tensor_reader_read(struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out)
{
    enum { CHUNK = 1 << 20 };
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t begin = first + at, n = count - at < CHUNK ? count - at : CHUNK, end = begin + n;
        void *to = (char *)out + at * dtype_bytes(dtype);
        TRY(r->sliced ? read_sliced(r, begin, n, dtype, to)
                      : read_safetensors(r, begin, n, dtype, to));
        TRY(r->sliced ? tensor_slices_check(r->sliced) : file_map_check(&r->file->map));
        if (r->begin == r->end) r->begin = begin, r->end = end;
        if (begin < r->begin) r->begin = begin;
        if (end > r->end) r->end = end;
        if (r->end - r->begin >= CHUNK) tensor_reader_close(r);
    }
    return STATUS_OK;
}
