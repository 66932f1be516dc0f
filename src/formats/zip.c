// SPDX-License-Identifier: Apache-2.0
#include "formats/zip.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    END_RECORD = 22,
    END64_LOCATOR = 20,
    END64_RECORD = 56,
    CENTRAL_HEADER = 46,
    LOCAL_HEADER = 30,
    MAX_COMMENT = 65535,
    EXTRA_ZIP64 = 1,
    EXTRA_PADDING = 0x4246, /* "FB", as in PyTorch */
};

static uint64_t read_le(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* The bytes of an archive that is being read. */
struct zip_image {
    const unsigned char *bytes;
    uint64_t size;
    const char *name;
};

static enum status find_end(const struct zip_image *a, uint64_t *at)
{
    for (uint64_t back = END_RECORD; back <= a->size && back <= END_RECORD + MAX_COMMENT; back++) {
        const unsigned char *end = a->bytes + a->size - back;
        if (memcmp(end, "PK\5\6", 4) || read_le(end + 20, 2) != back - END_RECORD) continue;
        *at = a->size - back;
        return STATUS_OK;
    }
    FAIL(DATA, "%s: not a ZIP archive, or truncated", a->name);
}

/* Finds the central directory.  A ZIP64 end record, if present, precedes the end record and
 * overrides it. */
static enum status find_directory(const struct zip_image *a, struct reader *directory,
                                  uint64_t *count)
{
    uint64_t at;
    TRY(find_end(a, &at));
    const unsigned char *end = a->bytes + at;
    if (read_le(end + 4, 2) != read_le(end + 6, 2))
        FAIL(UNSUPPORTED, "%s: multi-disk archives are not supported", a->name);
    uint64_t size = read_le(end + 12, 4), offset = read_le(end + 16, 4);
    *count = read_le(end + 10, 2);
    if (at >= END64_LOCATOR && !memcmp(end - END64_LOCATOR, "PK\6\7", 4)) {
        uint64_t end64 = read_le(end - END64_LOCATOR + 8, 8);
        if (end64 > a->size || a->size - end64 < END64_RECORD ||
            memcmp(a->bytes + end64, "PK\6\6", 4))
            FAIL(DATA, "%s: the ZIP64 end record is not at its offset", a->name);
        *count = read_le(a->bytes + end64 + 32, 8);
        size = read_le(a->bytes + end64 + 40, 8), offset = read_le(a->bytes + end64 + 48, 8);
    }
    if (offset > a->size || size > a->size - offset || *count > size / CENTRAL_HEADER)
        FAIL(DATA, "%s: the central directory of %llu entries exceeds the archive of %llu bytes",
             a->name, (unsigned long long)*count, (unsigned long long)a->size);
    *directory = (struct reader){a->bytes + offset, a->bytes + offset + size, a->name};
    return STATUS_OK;
}

/* Replaces fields of 0xFFFFFFFF with those of the ZIP64 extra field, in order. */
static enum status read_zip64_extra(const struct zip_image *a, const unsigned char *extra,
                                    uint64_t len, uint64_t *sizes[3])
{
    while (len >= 4) {
        uint64_t id = read_le(extra, 2), n = read_le(extra + 2, 2), at = 4;
        if (n > len - 4) break;
        for (int i = 0; i < 3 && id == EXTRA_ZIP64; i++) {
            if (*sizes[i] != UINT32_MAX) continue;
            if (at + 8 > n + 4) FAIL(DATA, "%s: incomplete ZIP64 extra field", a->name);
            *sizes[i] = read_le(extra + at, 8);
            at += 8;
        }
        extra += 4 + n, len -= 4 + n;
    }
    return STATUS_OK;
}

static enum status read_entry(const struct zip_image *a, struct reader *directory,
                              struct zip_entry *e)
{
    const unsigned char *central, *name, *extra;
    TRY(reader_bytes(directory, CENTRAL_HEADER, &central, "an entry of the central directory"));
    if (memcmp(central, "PK\1\2", 4)) FAIL(DATA, "%s: corrupt central directory", a->name);
    uint64_t name_len = read_le(central + 28, 2), extra_len = read_le(central + 30, 2);
    uint64_t compressed = read_le(central + 20, 4), size = read_le(central + 24, 4),
             at = read_le(central + 42, 4);
    TRY(reader_bytes(directory, name_len, &name, "an entry's name"));
    TRY(reader_bytes(directory, extra_len, &extra, "an entry's extra fields"));
    TRY(reader_bytes(directory, read_le(central + 32, 2), &(const unsigned char *){0},
                     "a comment"));
    TRY(read_zip64_extra(a, extra, extra_len, (uint64_t *[]){&size, &compressed, &at}));
    *e = (struct zip_entry){(const char *)name, name_len, NULL, size,
                            (uint32_t)read_le(central + 16, 4)};
    if (read_le(central + 10, 2) || read_le(central + 8, 2) & 1 || compressed != size)
        FAIL(UNSUPPORTED, "%s: %.*s is compressed or encrypted: entries must be stored", a->name,
             (int)(name_len < 200 ? name_len : 200), name);
    if (at > a->size || a->size - at < LOCAL_HEADER || memcmp(a->bytes + at, "PK\3\4", 4))
        FAIL(DATA, "%s: %.*s: no local header at its offset", a->name,
             (int)(name_len < 200 ? name_len : 200), name);
    uint64_t data =
        at + LOCAL_HEADER + read_le(a->bytes + at + 26, 2) + read_le(a->bytes + at + 28, 2);
    if (data > a->size || size > a->size - data)
        FAIL(DATA, "%s: %.*s: its %llu bytes exceed the archive", a->name,
             (int)(name_len < 200 ? name_len : 200), name, (unsigned long long)size);
    e->data = a->bytes + data;
    return STATUS_OK;
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int compare_entries(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_len, y->name, y->name_len);
}

enum status zip_parse(struct zip *z, const unsigned char *bytes, uint64_t size, const char *name)
{
    const struct zip_image a = {bytes, size, name};
    struct reader directory;
    uint64_t count;
    *z = (struct zip){0};
    TRY(find_directory(&a, &directory, &count));
    z->entries = heap(count * sizeof *z->entries);
    for (; z->count < count; z->count++) TRY(read_entry(&a, &directory, &z->entries[z->count]));
    qsort(z->entries, z->count, sizeof *z->entries, compare_entries);
    for (size_t i = 1; i < z->count; i++)
        if (!compare_entries(&z->entries[i - 1], &z->entries[i]))
            FAIL(DATA, "%s: duplicate entry %.*s", name,
                 (int)(z->entries[i].name_len < 200 ? z->entries[i].name_len : 200),
                 z->entries[i].name);
    return STATUS_OK;
}

void zip_release(struct zip *z)
{
    free(z->entries);
    *z = (struct zip){0};
}

const struct zip_entry *zip_find(const struct zip *z, const char *name, size_t name_len)
{
    const struct zip_entry key = {.name = name, .name_len = name_len};
    if (!z->count) return NULL;
    return bsearch(&key, z->entries, z->count, sizeof *z->entries, compare_entries);
}

uint32_t zip_crc(uint32_t crc, const void *bytes, size_t len)
{
    return (uint32_t)crc32_z(crc, bytes, len);
}

bool zip_entry_crc_ok(const struct zip_entry *e)
{
    return !e->crc || zip_crc(0, e->data, e->size) == e->crc;
}

enum { EXTRA64 = 20, CENTRAL_EXTRA64 = 28 };

/* The ZIP64 extra field with both sizes, then a padding field that aligns the data. */
uint64_t zip_writer_header_bytes(const struct zip_writer *w, const char *name)
{
    uint64_t min_bytes = LOCAL_HEADER + strlen(name) + EXTRA64 + 4;
    uint64_t misalignment = (w->at + min_bytes) % ZIP_ALIGN;
    return min_bytes + (misalignment ? ZIP_ALIGN - misalignment : 0);
}

static void add_common_fields(struct text *t, const char *name, uint64_t extra, uint32_t crc)
{
    text_add_le(t, 45, 2);       /* version needed to extract */
    text_add_le(t, 0x0800, 2);   /* flags: UTF-8 names */
    text_add_le(t, 0, 2);        /* method: stored */
    text_add_le(t, 0x210000, 4); /* 1 January 1980 */
    text_add_le(t, crc, 4);
    text_add_le(t, UINT32_MAX, 4), text_add_le(t, UINT32_MAX, 4);
    text_add_le(t, strlen(name), 2), text_add_le(t, extra, 2);
}

void zip_writer_add(struct zip_writer *w, const char *name, uint64_t size, uint32_t crc,
                    struct text *head)
{
    uint64_t bytes = zip_writer_header_bytes(w, name), extra = bytes - LOCAL_HEADER - strlen(name);
    struct text *d = &w->directory;
    text_clear(head);
    text_add(head, "PK\3\4", 4);
    add_common_fields(head, name, extra, crc);
    text_adds(head, name);
    text_add_le(head, EXTRA_ZIP64, 2), text_add_le(head, 16, 2), text_add_le(head, size, 8),
        text_add_le(head, size, 8);
    text_add_le(head, EXTRA_PADDING, 2), text_add_le(head, extra - EXTRA64 - 4, 2);
    while (head->len < bytes) text_add(head, "Z", 1);
    text_add(d, "PK\1\2", 4);
    text_add_le(d, 45, 2);
    add_common_fields(d, name, CENTRAL_EXTRA64, crc);
    text_add_le(d, 0, 2), text_add_le(d, 0, 2), text_add_le(d, 0, 2),
        text_add_le(d, 0, 4); /* comment, disk, attributes */
    text_add_le(d, UINT32_MAX, 4);
    text_adds(d, name);
    text_add_le(d, EXTRA_ZIP64, 2), text_add_le(d, 24, 2), text_add_le(d, size, 8),
        text_add_le(d, size, 8), text_add_le(d, w->at, 8);
    w->at += bytes + size;
    w->count++;
}

void zip_writer_finish(struct zip_writer *w, struct text *tail)
{
    uint64_t begin = w->at, size = w->directory.len;
    text_clear(tail);
    text_add(tail, w->directory.data, size);
    text_add(tail, "PK\6\6", 4);
    text_add_le(tail, END64_RECORD - 12, 8), text_add_le(tail, 45, 2), text_add_le(tail, 45, 2),
        text_add_le(tail, 0, 4), text_add_le(tail, 0, 4);
    text_add_le(tail, w->count, 8), text_add_le(tail, w->count, 8), text_add_le(tail, size, 8),
        text_add_le(tail, begin, 8);
    text_add(tail, "PK\6\7", 4);
    text_add_le(tail, 0, 4), text_add_le(tail, begin + size, 8), text_add_le(tail, 1, 4);
    text_add(tail, "PK\5\6", 4);
    text_add_le(tail, 0, 4);
    text_add_le(tail, UINT16_MAX, 2), text_add_le(tail, UINT16_MAX, 2);
    text_add_le(tail, UINT32_MAX, 4), text_add_le(tail, UINT32_MAX, 4), text_add_le(tail, 0, 2);
}

void zip_writer_release(struct zip_writer *w) { text_release(&w->directory); }
