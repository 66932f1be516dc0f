// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.h"

#include "base/heap.h"
#include "base/reader.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 6, MAX_AXES = 2, NAME = 32 };

/* The header is a Python dict: {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), } */
struct npy_header {
    char descr[NAME];
    bool fortran;
    int num_axes;
    uint64_t axes[MAX_AXES];
    bool has_descr, has_fortran, has_shape;
};

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool accept(struct reader *r, const char *word)
{
    size_t len = strlen(word);
    skip_space(r);
    if (reader_left(r) < len || memcmp(r->at, word, len) != 0) return false;
    r->at += len;
    return true;
}

static enum status fail_corrupt(const struct reader *r)
{
    size_t left = reader_left(r);
    FAIL(DATA, "%s: corrupt .npy header at \"%.*s\"", r->name, (int)(left < NAME ? left : NAME),
         (const char *)r->at);
}

static enum status read_string(struct reader *r, char out[NAME])
{
    skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return fail_corrupt(r);
    const unsigned char *end = memchr(r->at + 1, *r->at, reader_left(r) - 1);
    if (!end || end - r->at > NAME) return fail_corrupt(r);
    size_t len = (size_t)(end - r->at) - 1;
    memcpy(out, r->at + 1, len);
    out[len] = 0;
    r->at = end + 1;
    return STATUS_OK;
}

static enum status read_axis(struct reader *r, uint64_t *out)
{
    *out = 0;
    if (r->at == r->end || !isdigit(*r->at)) return fail_corrupt(r);
    for (; r->at < r->end && isdigit(*r->at); r->at++) {
        if (*out > (UINT64_MAX - 9) / 10) return fail_corrupt(r);
        *out = 10 * *out + (uint64_t)(*r->at - '0');
    }
    accept(r, "L"); /* a Python 2 long */
    return STATUS_OK;
}

static enum status read_shape(struct reader *r, struct npy_header *h)
{
    uint64_t axis;
    if (!accept(r, "(")) return fail_corrupt(r);
    while (!accept(r, ")")) {
        TRY(read_axis(r, &axis));
        if (h->num_axes < MAX_AXES) h->axes[h->num_axes] = axis;
        h->num_axes++;
        if (accept(r, ",")) skip_space(r);
    }
    h->has_shape = true;
    return STATUS_OK;
}

static enum status read_header(struct reader r, struct npy_header *h)
{
    char key[NAME];
    if (!accept(&r, "{")) return fail_corrupt(&r);
    while (!accept(&r, "}")) {
        TRY(read_string(&r, key));
        if (!accept(&r, ":")) return fail_corrupt(&r);
        skip_space(&r);
        if (!strcmp(key, "descr")) {
            if (r.at < r.end && *r.at == '[')
                FAIL(UNSUPPORTED,
                     "%s: structured dtypes are not supported: expected an integer dtype", r.name);
            TRY(read_string(&r, h->descr));
            h->has_descr = true;
        } else if (!strcmp(key, "fortran_order")) {
            h->fortran = accept(&r, "True");
            if (!h->fortran && !accept(&r, "False")) return fail_corrupt(&r);
            h->has_fortran = true;
        } else if (!strcmp(key, "shape")) {
            TRY(read_shape(&r, h));
        } else {
            return fail_corrupt(&r);
        }
        accept(&r, ",");
    }
    if (!h->has_descr || !h->has_fortran || !h->has_shape)
        FAIL(DATA, "%s: the .npy header lacks descr, fortran_order or shape", r.name);
    return STATUS_OK;
}

static enum status set_dtype(struct npy *n, const char *descr)
{
    bool is_integer =
        (descr[1] == 'u' || descr[1] == 'i') && strlen(descr) == 3 && memchr("1248", descr[2], 4);
    if (!strchr("<>=|", descr[0]) || !is_integer)
        FAIL(UNSUPPORTED,
             "%s: dtype \"%s\" is not supported: expected an integer dtype such as \"<u2\"",
             n->path, descr);
    n->item_bytes = descr[2] - '0';
    n->is_signed = descr[1] == 'i';
    if (descr[0] == '>' && n->item_bytes > 1)
        FAIL(UNSUPPORTED,
             "%s: big-endian dtype \"%s\" is not supported: convert it with astype(\"<%s\")",
             n->path, descr, descr + 1);
    return STATUS_OK;
}

static enum status set_shape(struct npy *n, const struct npy_header *h, uint64_t data_bytes)
{
    uint64_t items, bytes;
    if (h->num_axes < 1 || h->num_axes > MAX_AXES)
        FAIL(UNSUPPORTED,
             "%s: expected 1 dimension (tokens) or 2 (documents of equal length), got %d", n->path,
             h->num_axes);
    if (h->fortran && h->num_axes > 1)
        FAIL(UNSUPPORTED,
             "%s: Fortran order is not supported: convert the array with numpy.ascontiguousarray",
             n->path);
    n->num_axes = h->num_axes;
    n->rows = h->num_axes == 1 ? 1 : h->axes[0];
    n->columns = h->axes[h->num_axes - 1];
    if (__builtin_mul_overflow(n->rows, n->columns, &items) ||
        __builtin_mul_overflow(items, (uint64_t)n->item_bytes, &bytes) || bytes != data_bytes)
        FAIL(DATA, "%s: %llu bytes of data do not match shape %llu x %llu of %d-byte items",
             n->path, (unsigned long long)data_bytes, (unsigned long long)n->rows,
             (unsigned long long)n->columns, n->item_bytes);
    return STATUS_OK;
}

enum status npy_parse(struct npy *n, const unsigned char *bytes, uint64_t size)
{
    struct reader r = {bytes, bytes + size, n->path};
    const unsigned char *at;
    struct npy_header h = {.num_axes = 0};
    uint8_t low = 0, high = 0;
    uint32_t len = 0;
    if (size < MAGIC + 2 || memcmp(bytes, "\x93NUMPY", MAGIC) != 0)
        FAIL(DATA, "%s: not a .npy file, or truncated", n->path);
    int version = bytes[MAGIC];
    if (version < 1 || version > 3)
        FAIL(UNSUPPORTED, "%s: .npy version %d is not supported: expected 1 to 3", n->path,
             version);
    r.at += MAGIC + 2;
    if (version == 1) {
        TRY(reader_u8(&r, &low, "the header's length"));
        TRY(reader_u8(&r, &high, "the header's length"));
        len = low | (uint32_t)high << 8;
    } else {
        TRY(reader_u32(&r, &len, "the header's length"));
    }
    TRY(reader_bytes(&r, len, &at, "the header"));
    TRY(read_header((struct reader){at, at + len, n->path}, &h));
    TRY(set_dtype(n, h.descr));
    n->data = r.at;
    return set_shape(n, &h, reader_left(&r));
}

enum status npy_open(struct npy *n, const char *path)
{
    *n = (struct npy){.path = heap_strdup(path)};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&n->map, path));
    TRY_OUT(file_map_check_after(&n->map, npy_parse(n, n->map.data, n->map.size)));
out:
    if (st) npy_close(n);
    return st;
}

void npy_close(struct npy *n)
{
    file_map_close(&n->map);
    free(n->path);
    *n = (struct npy){0};
}

static int64_t read_integer(const struct npy *n, uint64_t index)
{
    uint64_t bits = 0;
    unsigned high = 64 - 8 * (unsigned)n->item_bytes;
    memcpy(&bits, n->data + index * (uint64_t)n->item_bytes, (size_t)n->item_bytes);
    if (n->is_signed) return (int64_t)(bits << high) >> high;
    return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

enum status npy_read(const struct npy *n, uint64_t from, uint64_t count, int64_t vocab_size,
                     int32_t *ids)
{
    int64_t limit = vocab_size ? vocab_size : INT64_C(1) + INT32_MAX;
    BUG_IF(from > n->rows * n->columns || count > n->rows * n->columns - from);
    for (uint64_t i = 0; i < count; i++) {
        int64_t id = read_integer(n, from + i);
        if (id < 0 || id >= limit)
            FAIL(RECORD, "%s: element %llu is %lld: token IDs must be between 0 and %lld", n->path,
                 (unsigned long long)(from + i), (long long)id, (long long)limit - 1);
        ids[i] = (int32_t)id;
    }
    return STATUS_OK;
}
