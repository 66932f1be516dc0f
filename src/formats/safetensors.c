// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include "base/json.h"
#include "base/reader.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000 };
/* Bounds the time and memory of reading a header; the largest models have some 100,000 tensors. */
enum { MAX_TENSORS = 1 << 17 };

static const struct {
    const char *name;
    size_t bits;
} dtypes[] = {
#define X(name, bits) [SAFETENSORS_##name] = {#name, bits},
    SAFETENSORS_LIST(X)
#undef X
};

const char *safetensors_dtype_name(enum safetensors_dtype d) { return dtypes[d].name; }
size_t safetensors_dtype_bytes(enum safetensors_dtype d) { return dtypes[d].bits / 8; }

bool safetensors_dtype_find(const char *name, enum safetensors_dtype *out)
{
    for (int d = 0; d < SAFETENSORS_DTYPES; d++)
        if (!strcmp(dtypes[d].name, name)) {
            *out = (enum safetensors_dtype)d;
            return true;
        }
    return false;
}

static enum status read_shape(const char *path, const struct json *shape,
                              struct safetensors_tensor *t)
{
    t->elements = 1;
    if (!json_is_array(shape))
        FAIL(DATA, "%s: tensor %s: \"shape\" must be an array", path, t->name);
    for (const struct json *v = json_first(shape); v; v = json_next(v)) {
        int64_t n;
        if (t->num_dims == SAFETENSORS_DIMS)
            FAIL(DATA, "%s: tensor %s: more than %d dimensions", path, t->name, SAFETENSORS_DIMS);
        if (!json_as_int(v, 0, INT64_MAX, &n) ||
            __builtin_mul_overflow(t->elements, (uint64_t)n, &t->elements))
            FAIL(DATA, "%s: tensor %s: invalid shape", path, t->name);
        t->shape[t->num_dims++] = n;
    }
    return STATUS_OK;
}

static enum status read_tensor(const char *path, const struct json *v, struct safetensors_tensor *t)
{
    const struct json *dtype = json_get(v, "dtype");
    const struct json *offsets = json_get(v, "data_offsets"), *first = json_first(offsets);
    int64_t begin, end;
    uint64_t bytes;
    t->name = heap_strdup(json_key(v));
    if (!json_is_object(v)) FAIL(DATA, "%s: tensor %s: expected an object", path, t->name);
    if (!json_is_string(dtype))
        FAIL(DATA, "%s: tensor %s: \"dtype\" must be a string", path, t->name);
    if (!safetensors_dtype_find(json_string(dtype), &t->dtype))
        FAIL(UNSUPPORTED, "%s: tensor %s: unknown dtype \"%s\"", path, t->name, json_string(dtype));
    TRY(read_shape(path, json_get(v, "shape"), t));
    if (!json_is_array(offsets) || json_count(offsets) != 2 ||
        !json_as_int(first, 0, INT64_MAX, &begin) ||
        !json_as_int(json_next(first), begin, INT64_MAX, &end))
        FAIL(DATA, "%s: tensor %s: \"data_offsets\" must be two ascending integers", path, t->name);
    if (__builtin_mul_overflow(t->elements, safetensors_dtype_bytes(t->dtype), &bytes) ||
        (uint64_t)(end - begin) != bytes)
        FAIL(DATA, "%s: tensor %s: %lld bytes do not match its shape and dtype", path, t->name,
             (long long)(end - begin));
    t->begin = (uint64_t)begin, t->end = (uint64_t)end;
    return STATUS_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int compare_pointed_names(const void *a, const void *b)
{
    return safetensors_compare_names(*(const void *const *)a, *(const void *const *)b);
}

static void sort_names(struct safetensors *s)
{
    if (s->count) qsort(s->by_name, s->count, sizeof *s->by_name, compare_pointed_names);
}

/* The tensors must cover the data without holes or overlaps. */
static enum status check_offsets(const struct safetensors *s, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->tensors[i].begin != at)
            FAIL(DATA, "%s: tensor %s starts at byte %llu of the data: expected %llu", s->path,
                 s->tensors[i].name, (unsigned long long)s->tensors[i].begin,
                 (unsigned long long)at);
        at = s->tensors[i].end;
    }
    if (at != data_bytes)
        FAIL(DATA, "%s: the file has %llu bytes of data, but the header describes %llu", s->path,
             (unsigned long long)data_bytes, (unsigned long long)at);
    return STATUS_OK;
}

static enum status read_tensors(struct safetensors *s, const struct json *root, uint64_t data_bytes)
{
    if (!json_is_object(root)) FAIL(DATA, "%s: the header must be an object", s->path);
    s->tensors = heap(json_count(root) * sizeof *s->tensors);
    for (const struct json *v = json_first(root); v; v = json_next(v)) {
        if (strcmp(json_key(v), "__metadata__")) {
            TRY(read_tensor(s->path, v, &s->tensors[s->count++]));
            continue;
        }
        if (!json_is_object(v)) FAIL(DATA, "%s: __metadata__ must be an object", s->path);
        for (const struct json *m = json_first(v); m; m = json_next(m))
            if (!json_is_string(m)) FAIL(DATA, "%s: __metadata__ values must be strings", s->path);
    }
    qsort(s->tensors, s->count, sizeof *s->tensors, compare_offsets);
    s->by_name = heap(s->count * sizeof *s->by_name);
    for (size_t i = 0; i < s->count; i++) s->by_name[i] = &s->tensors[i];
    sort_names(s);
    TRY(check_offsets(s, data_bytes));
    return STATUS_OK;
}

enum status safetensors_parse(struct safetensors *s, const unsigned char *bytes, uint64_t size)
{
    struct reader r = {bytes, bytes + size, s->path};
    const unsigned char *header;
    uint64_t len;
    struct json *root;
    TRY(reader_u64(&r, &len, "the header's length"));
    if (len > MAX_HEADER)
        FAIL(DATA, "%s: header of %llu bytes exceeds the limit of %d", s->path,
             (unsigned long long)len, MAX_HEADER);
    TRY(reader_bytes(&r, len, &header, "the header"));
    if (!len || header[0] != '{') FAIL(DATA, "%s: the header must begin with {", s->path);
    size_t objects = 0; /* one a tensor, besides the header itself and __metadata__ */
    for (uint64_t i = 0; i < len; i++) objects += header[i] == '{';
    if (objects > MAX_TENSORS + 2)
        FAIL(DATA, "%s: the header has %zu objects: at most %d tensors are supported", s->path,
             objects, MAX_TENSORS);
    TRY(json_parse((const char *)header, len, s->path, &root));
    s->data = 8 + len;
    enum status st = read_tensors(s, root, size - s->data);
    json_free(root);
    return st;
}

enum status safetensors_index(struct safetensors *s)
{
    s->by_name = heap_grow(s->by_name, s->count, sizeof *s->by_name);
    qsort(s->tensors, s->count, sizeof *s->tensors, compare_offsets);
    for (size_t i = 0; i < s->count; i++) s->by_name[i] = &s->tensors[i];
    sort_names(s);
    for (size_t i = 1; i < s->count; i++)
        if (!strcmp(s->by_name[i]->name, s->by_name[i - 1]->name))
            FAIL(DATA, "%s: duplicate tensor %s", s->path, s->by_name[i]->name);
    return STATUS_OK;
}

enum status safetensors_rename(struct safetensors *s, char *(*rename)(const char *name))
{
    for (size_t i = 0; i < s->count; i++) {
        char *name = rename(s->tensors[i].name);
        free(s->tensors[i].name);
        s->tensors[i].name = name;
    }
    return safetensors_index(s);
}

static struct safetensors_tensor part_of(const struct safetensors_tensor *whole,
                                         const struct safetensors_part *part)
{
    struct safetensors_tensor t = *whole;
    const uint64_t rows = whole->num_dims ? (uint64_t)whole->shape[0] : 0;
    t.name = heap_strdup(part->name);
    if (!rows) return t;
    const uint64_t row_bytes = (whole->end - whole->begin) / rows;
    t.shape[0] = part->rows;
    t.begin = whole->begin + row_bytes * (uint64_t)part->row;
    t.end = t.begin + row_bytes * (uint64_t)part->rows;
    t.elements = whole->elements / rows * (uint64_t)part->rows;
    return t;
}

void safetensors_split(struct safetensors *s, size_t index, const struct safetensors_part *parts,
                       size_t count)
{
    const struct safetensors_tensor whole = s->tensors[index];
    s->tensors = heap_grow(s->tensors, s->count + count - 1, sizeof *s->tensors);
    for (size_t i = 0; i < count; i++)
        s->tensors[i ? s->count++ : index] = part_of(&whole, &parts[i]);
    free(whole.name);
}

enum status safetensors_open(struct safetensors *s, const char *path)
{
    *s = (struct safetensors){.path = heap_strdup(path)};
    enum status st = file_map_open(&s->map, path);
    if (!st) st = file_map_check_after(&s->map, safetensors_parse(s, s->map.data, s->map.size));
    if (st) safetensors_close(s);
    return st;
}

void safetensors_close(struct safetensors *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->tensors[i].name);
    free(s->tensors);
    free(s->by_name);
    free(s->path);
    file_map_close(&s->map);
    *s = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (size_t low = 0, high = s->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, s->by_name[middle]->name);
        if (!order) return s->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static float f16_to_f32(uint16_t h)
{
    int exponent = h >> 10 & 31, sign = h >> 15 ? -1 : 1;
    float fraction = (float)(h & 1023);
    if (exponent == 31) return fraction > 0 ? NAN : (float)sign * INFINITY;
    if (exponent == 0) return (float)sign * ldexpf(fraction, -24);
    return (float)sign * ldexpf(fraction + 1024, exponent - 25);
}

/* Rounds to nearest even; overflows to infinity. */
static uint16_t f16_from_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00);
    if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x38800000) { /* subnormal: a multiple of 2^-24 */
        float scaled = fabsf(x) * 16777216.0f;
        return (uint16_t)(sign | (uint16_t)nearbyintf(scaled));
    }
    uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

/* E4M3 has neither infinities nor other NaNs than 0x7F and 0xFF; its bits are those of an F16 whose
 * exponent's bias is 8 less. */
static float f8_e4m3_to_f32(unsigned char x)
{
    if ((x & 0x7F) == 0x7F) return NAN;
    return 256 * f16_to_f32((uint16_t)((x & 0x80) << 8 | (x & 0x7F) << 7));
}

static void f8_to_f32(enum safetensors_dtype dtype, const unsigned char *from, uint64_t n,
                      float *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = dtype == SAFETENSORS_F8_E4M3 ? f8_e4m3_to_f32(from[i])
                                              : f16_to_f32((uint16_t)(from[i] << 8));
}

void safetensors_to_f32(enum safetensors_dtype dtype, const unsigned char *from, uint64_t n,
                        float *out)
{
    if (dtype == SAFETENSORS_F32) {
        memcpy(out, from, n * sizeof *out);
        return;
    }
    if (safetensors_dtype_bytes(dtype) == 1) {
        f8_to_f32(dtype, from, n, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;
        double wide;
        if (dtype == SAFETENSORS_F64) {
            memcpy(&wide, from + 8 * i, 8);
            out[i] = (float)wide;
            continue;
        }
        memcpy(&half, from + 2 * i, 2);
        out[i] = dtype == SAFETENSORS_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
}

enum status safetensors_read_part(const struct safetensors *s, const struct safetensors_tensor *t,
                                  uint64_t first, uint64_t count, float *out)
{
    BUG_IF(first > t->elements || count > t->elements - first);
    size_t each = safetensors_dtype_bytes(t->dtype);
    if (t->dtype != SAFETENSORS_F32 && t->dtype != SAFETENSORS_BF16 &&
        t->dtype != SAFETENSORS_F16 && t->dtype != SAFETENSORS_F64 &&
        t->dtype != SAFETENSORS_F8_E4M3 && t->dtype != SAFETENSORS_F8_E5M2)
        FAIL(UNSUPPORTED,
             "%s: tensor %s: dtype %s is not supported: expected F32, BF16, F16, F64, F8_E4M3 or "
             "F8_E5M2",
             s->path, t->name, safetensors_dtype_name(t->dtype));
    if (!count) return STATUS_OK;
    const unsigned char *from = s->map.data + s->data + t->begin + first * each;
    enum { PART = 1 << 16 }; /* elements that a thread converts at a time */
#pragma omp parallel for schedule(static) if (count > PART)
    for (uint64_t at = 0; at < count; at += PART)
        safetensors_to_f32(t->dtype, from + at * each, count - at < PART ? count - at : PART,
                           out + at);
    return STATUS_OK;
}

enum status safetensors_read_part_bf16(const struct safetensors *s,
                                       const struct safetensors_tensor *t, uint64_t first,
                                       uint64_t count, uint16_t *out)
{
    enum { BATCH = 4096 };
    float batch[BATCH];
    BUG_IF(first > t->elements || count > t->elements - first);
    if (t->dtype == SAFETENSORS_BF16 && count)
        memcpy(out, s->map.data + s->data + t->begin + first * sizeof *out, count * sizeof *out);
    for (uint64_t at = 0; t->dtype != SAFETENSORS_BF16 && at < count; at += BATCH) {
        uint64_t left = count - at, n = left < BATCH ? left : BATCH;
        TRY(safetensors_read_part(s, t, first + at, n, batch));
        safetensors_from_f32(batch, n, SAFETENSORS_BF16, out + at);
    }
    return STATUS_OK;
}

int safetensors_compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void safetensors_build_header(struct safetensors_tensor *tensors, size_t count, struct text *header,
                              uint64_t *total)
{
    struct json_writer w = {.text = header};
    text_clear(header);
    text_add(header, "\0\0\0\0\0\0\0\0", 8);
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_begin_object(&w, "__metadata__", JSON_COMPACT);
    json_write_string(&w, "format", "pt");
    json_end_object(&w);
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        struct safetensors_tensor *t = &tensors[i];
        t->elements = 1;
        json_begin_object(&w, t->name, JSON_COMPACT);
        json_write_string(&w, "dtype", safetensors_dtype_name(t->dtype));
        json_begin_array(&w, "shape", JSON_COMPACT);
        for (int d = 0; d < t->num_dims; d++) {
            json_write_int(&w, NULL, t->shape[d]);
            t->elements *= (uint64_t)t->shape[d];
        }
        json_end_array(&w);
        t->begin = *total;
        t->end = *total += t->elements * safetensors_dtype_bytes(t->dtype);
        json_begin_array(&w, "data_offsets", JSON_COMPACT);
        json_write_int(&w, NULL, (int64_t)t->begin);
        json_write_int(&w, NULL, (int64_t)t->end);
        json_end_array(&w);
        json_end_object(&w);
    }
    json_end_object(&w);
    json_finish(&w);
    while (header->len % 8) text_adds(header, " ");
    text_encode_le(header->len - 8, 8, header->data);
}

void safetensors_from_f32(const float *x, size_t n, enum safetensors_dtype to, void *out)
{
    BUG_IF(to != SAFETENSORS_F32 && to != SAFETENSORS_BF16 && to != SAFETENSORS_F16);
    if (to == SAFETENSORS_F32) memcpy(out, x, n * sizeof *x);
    for (size_t i = 0; i < n && to != SAFETENSORS_F32; i++) {
        uint16_t half = to == SAFETENSORS_BF16 ? bf16_from_f32(x[i]) : f16_from_f32(x[i]);
        memcpy((char *)out + 2 * i, &half, 2);
    }
}
