// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 6, MOST_AXES = 2, NAME = 32 };

/* The header is a Python dict: {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), } */
struct header {
    char descr[NAME];
    bool fortran;
    int num_axes;
    uint64_t axes[MOST_AXES];
    bool has_descr, has_fortran, has_shape;
};

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool take(struct reader *r, const char *word)
{
    size_t len = strlen(word);
    skip_space(r);
    if (reader_left(r) < len || memcmp(r->at, word, len) != 0) return false;
    r->at += len;
    return true;
}

static enum status damaged(const struct reader *r)
{
    size_t left = reader_left(r);
    FAIL(DATA, "%s: the header of the array is damaged at \"%.*s\"", r->name,
         (int)(left < NAME ? left : NAME), (const char *)r->at);
}

static enum status read_string(struct reader *r, char out[NAME])
{
    skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return damaged(r);
    const unsigned char *end = memchr(r->at + 1, *r->at, reader_left(r) - 1);
    if (!end || end - r->at > NAME) return damaged(r);
    size_t len = (size_t)(end - r->at) - 1;
    memcpy(out, r->at + 1, len);
    out[len] = 0;
    r->at = end + 1;
    return STATUS_OK;
}

static enum status read_axis(struct reader *r, uint64_t *out)
{
    *out = 0;
    if (r->at == r->end || !isdigit(*r->at)) return damaged(r);
    for (; r->at < r->end && isdigit(*r->at); r->at++) {
        if (*out > (UINT64_MAX - 9) / 10) return damaged(r);
        *out = 10 * *out + (uint64_t)(*r->at - '0');
    }
    take(r, "L"); /* as Python 2 wrote them */
    return STATUS_OK;
}

static enum status read_shape(struct reader *r, struct header *h)
{
    uint64_t axis;
    if (!take(r, "(")) return damaged(r);
    while (!take(r, ")")) {
        TRY(read_axis(r, &axis));
        if (h->num_axes < MOST_AXES) h->axes[h->num_axes] = axis;
        h->num_axes++;
        if (take(r, ",")) skip_space(r);
    }
    h->has_shape = true;
    return STATUS_OK;
}

static enum status read_header(struct reader r, struct header *h)
{
    char key[NAME];
    if (!take(&r, "{")) return damaged(&r);
    while (!take(&r, "}")) {
        TRY(read_string(&r, key));
        if (!take(&r, ":")) return damaged(&r);
        skip_space(&r);
        if (!strcmp(key, "descr")) {
            if (r.at < r.end && *r.at == '[')
                FAIL(UNSUPPORTED, "%s: an array of structs; whole numbers are read", r.name);
            TRY(read_string(&r, h->descr));
            h->has_descr = true;
        } else if (!strcmp(key, "fortran_order")) {
            h->fortran = take(&r, "True");
            if (!h->fortran && !take(&r, "False")) return damaged(&r);
            h->has_fortran = true;
        } else if (!strcmp(key, "shape")) {
            TRY(read_shape(&r, h));
        } else {
            return damaged(&r);
        }
        take(&r, ",");
    }
    if (!h->has_descr || !h->has_fortran || !h->has_shape)
        FAIL(DATA, "%s: the header of the array lacks descr, fortran_order or shape", r.name);
    return STATUS_OK;
}

static enum status take_dtype(struct npy *n, const char *descr)
{
    bool whole =
        (descr[1] == 'u' || descr[1] == 'i') && strlen(descr) == 3 && memchr("1248", descr[2], 4);
    if (!strchr("<>=|", descr[0]) || !whole)
        FAIL(UNSUPPORTED, "%s: an array of \"%s\"; whole numbers are read, as \"<u2\"", n->path,
             descr);
    n->item_bytes = descr[2] - '0';
    n->is_signed = descr[1] == 'i';
    if (descr[0] == '>' && n->item_bytes > 1)
        FAIL(UNSUPPORTED, "%s: big-endian numbers (\"%s\"); save them by astype(\"<%s\")", n->path,
             descr, descr + 1);
    return STATUS_OK;
}

static enum status take_shape(struct npy *n, const struct header *h, uint64_t there)
{
    uint64_t items, bytes;
    if (h->num_axes < 1 || h->num_axes > MOST_AXES)
        FAIL(UNSUPPORTED,
             "%s: an array of %d axes; those of one (tokens) or two (documents of as "
             "many tokens each) are read",
             n->path, h->num_axes);
    if (h->fortran && h->num_axes > 1)
        FAIL(UNSUPPORTED, "%s: its axes are in Fortran's order; save it by ascontiguousarray",
             n->path);
    n->num_axes = h->num_axes;
    n->rows = h->num_axes == 1 ? 1 : h->axes[0];
    n->columns = h->axes[h->num_axes - 1];
    if (__builtin_mul_overflow(n->rows, n->columns, &items) ||
        __builtin_mul_overflow(items, (uint64_t)n->item_bytes, &bytes) || bytes != there)
        FAIL(DATA, "%s: %llu bytes where %llu x %llu numbers of %d bytes should be", n->path,
             (unsigned long long)there, (unsigned long long)n->rows, (unsigned long long)n->columns,
             n->item_bytes);
    return STATUS_OK;
}

enum status npy_parse(struct npy *n, const unsigned char *bytes, uint64_t size)
{
    struct reader r = {bytes, bytes + size, n->path};
    const unsigned char *at;
    struct header h = {.num_axes = 0};
    uint8_t low = 0, high = 0;
    uint32_t len = 0;
    if (size < MAGIC + 2 || memcmp(bytes, "\x93NUMPY", MAGIC) != 0)
        FAIL(DATA, "%s: no .npy file, or one cut off", n->path);
    int version = bytes[MAGIC];
    if (version < 1 || version > 3)
        FAIL(UNSUPPORTED, "%s: version %d of .npy; 1 to 3 are read", n->path, version);
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
    TRY(take_dtype(n, h.descr));
    n->data = r.at;
    return take_shape(n, &h, reader_left(&r));
}

enum status npy_open(struct npy *n, const char *path)
{
    *n = (struct npy){.path = heap_string(path, strlen(path))};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&n->map, path));
    TRY_OUT(npy_parse(n, n->map.data, n->map.size));
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

static int64_t number_at(const struct npy *n, uint64_t index)
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
    int64_t most = vocab_size ? vocab_size : INT64_C(1) + INT32_MAX;
    BUG_IF(from > n->rows * n->columns || count > n->rows * n->columns - from);
    for (uint64_t i = 0; i < count; i++) {
        int64_t id = number_at(n, from + i);
        if (id < 0 || id >= most)
            FAIL(DATA, "%s: number %llu is %lld; ids are 0 to %lld", n->path,
                 (unsigned long long)(from + i), (long long)id, (long long)most - 1);
        ids[i] = (int32_t)id;
    }
    return STATUS_OK;
}
