// SPDX-License-Identifier: Apache-2.0
#include "formats/zip.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    CENTRAL = 46,
    LOCAL = 30,
    MOST_COMMENT = 65535,
    EXTRA_ZIP64 = 1,
    EXTRA_PADDING = 0x4246, /* "FB", as torch names its own */
};

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* An archive being read. */
struct archive {
    const unsigned char *bytes;
    uint64_t size;
    const char *name;
};

static enum status find_end(const struct archive *a, uint64_t *at)
{
    for (uint64_t back = END; back <= a->size && back <= END + MOST_COMMENT; back++) {
        const unsigned char *end = a->bytes + a->size - back;
        if (memcmp(end, "PK\5\6", 4) || number(end + 20, 2) != back - END) continue;
        *at = a->size - back;
        return STATUS_OK;
    }
    FAIL(DATA, "%s: no ZIP archive, or one that is cut off", a->name);
}

/* Where the directory is; where its numbers do not fit, another end before the end has them. */
static enum status find_directory(const struct archive *a, struct reader *directory,
                                  uint64_t *count)
{
    uint64_t at;
    TRY(find_end(a, &at));
    const unsigned char *end = a->bytes + at;
    if (number(end + 4, 2) != number(end + 6, 2))
        FAIL(UNSUPPORTED, "%s: an archive of several disks", a->name);
    uint64_t size = number(end + 12, 4), offset = number(end + 16, 4);
    *count = number(end + 10, 2);
    if (at >= LOCATOR && !memcmp(end - LOCATOR, "PK\6\7", 4)) {
        uint64_t wide = number(end - LOCATOR + 8, 8);
        if (wide > a->size || a->size - wide < END64 || memcmp(a->bytes + wide, "PK\6\6", 4))
            FAIL(DATA, "%s: the archive's end does not lie where it says", a->name);
        *count = number(a->bytes + wide + 32, 8);
        size = number(a->bytes + wide + 40, 8), offset = number(a->bytes + wide + 48, 8);
    }
    if (offset > a->size || size > a->size - offset || *count > size / CENTRAL)
        FAIL(DATA, "%s: the archive's directory of %llu entries is not in its %llu bytes", a->name,
             (unsigned long long)*count, (unsigned long long)a->size);
    *directory = (struct reader){a->bytes + offset, a->bytes + offset + size, a->name};
    return STATUS_OK;
}

/* The numbers that had no room, in their order. */
static enum status widen(const struct archive *a, const unsigned char *extra, uint64_t len,
                         uint64_t *sizes[3])
{
    while (len >= 4) {
        uint64_t id = number(extra, 2), n = number(extra + 2, 2), at = 4;
        if (n > len - 4) break;
        for (int i = 0; i < 3 && id == EXTRA_ZIP64; i++) {
            if (*sizes[i] != UINT32_MAX) continue;
            if (at + 8 > n + 4) FAIL(DATA, "%s: an entry's size is missing", a->name);
            *sizes[i] = number(extra + at, 8);
            at += 8;
        }
        extra += 4 + n, len -= 4 + n;
    }
    return STATUS_OK;
}

static enum status read_entry(const struct archive *a, struct reader *directory,
                              struct zip_entry *e)
{
    const unsigned char *c, *name, *extra;
    TRY(reader_bytes(directory, CENTRAL, &c, "an entry of the archive's directory"));
    if (memcmp(c, "PK\1\2", 4)) FAIL(DATA, "%s: the archive's directory is damaged", a->name);
    uint64_t name_len = number(c + 28, 2), extra_len = number(c + 30, 2);
    uint64_t packed = number(c + 20, 4), size = number(c + 24, 4), at = number(c + 42, 4);
    TRY(reader_bytes(directory, name_len, &name, "an entry's name"));
    TRY(reader_bytes(directory, extra_len, &extra, "an entry's extra fields"));
    TRY(reader_bytes(directory, number(c + 32, 2), &(const unsigned char *){0}, "a comment"));
    TRY(widen(a, extra, extra_len, (uint64_t *[]){&size, &packed, &at}));
    *e = (struct zip_entry){(const char *)name, name_len, NULL, size, (uint32_t)number(c + 16, 4)};
    if (number(c + 10, 2) || number(c + 8, 2) & 1 || packed != size)
        FAIL(UNSUPPORTED,
             "%s: %.*s is compressed or encrypted: entries stored as they are are read", a->name,
             (int)(name_len < 200 ? name_len : 200), name);
    if (at > a->size || a->size - at < LOCAL || memcmp(a->bytes + at, "PK\3\4", 4))
        FAIL(DATA, "%s: %.*s is not where the archive's directory says", a->name,
             (int)(name_len < 200 ? name_len : 200), name);
    uint64_t data = at + LOCAL + number(a->bytes + at + 26, 2) + number(a->bytes + at + 28, 2);
    if (data > a->size || size > a->size - data)
        FAIL(DATA, "%s: %.*s has %llu bytes, which are not there", a->name,
             (int)(name_len < 200 ? name_len : 200), name, (unsigned long long)size);
    e->data = a->bytes + data;
    return STATUS_OK;
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_len, y->name, y->name_len);
}

enum status zip_parse(struct zip *z, const unsigned char *bytes, uint64_t size, const char *name)
{
    const struct archive a = {bytes, size, name};
    struct reader directory;
    uint64_t count;
    *z = (struct zip){0};
    TRY(find_directory(&a, &directory, &count));
    z->entries = heap(count * sizeof *z->entries);
    for (; z->count < count; z->count++) TRY(read_entry(&a, &directory, &z->entries[z->count]));
    qsort(z->entries, z->count, sizeof *z->entries, by_name);
    for (size_t i = 1; i < z->count; i++)
        if (!by_name(&z->entries[i - 1], &z->entries[i]))
            FAIL(DATA, "%s: two entries of the archive are called %.*s", name,
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
    return bsearch(&key, z->entries, z->count, sizeof *z->entries, by_name);
}

uint32_t zip_crc(uint32_t crc, const void *bytes, size_t len)
{
    return (uint32_t)crc32_z(crc, bytes, len);
}

bool zip_entry_is_sound(const struct zip_entry *e)
{
    return !e->crc || zip_crc(0, e->data, e->size) == e->crc;
}

static void put(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) text_add(t, &(unsigned char){(value >> (8 * i)) & 255}, 1);
}

enum { EXTRA64 = 20, CENTRAL_EXTRA64 = 28 };

/* Both sizes, and then what fills up to the alignment with a field of its own. */
uint64_t zip_head_bytes(const struct zip_writer *w, const char *name)
{
    uint64_t least = LOCAL + strlen(name) + EXTRA64 + 4;
    uint64_t over = (w->at + least) % ZIP_ALIGN;
    return least + (over ? ZIP_ALIGN - over : 0);
}

static void put_entry(struct text *t, const char *name, uint64_t extra, uint32_t crc)
{
    put(t, 45, 2);       /* version that reads it */
    put(t, 0x0800, 2);   /* names are UTF-8 */
    put(t, 0, 2);        /* stored */
    put(t, 0x210000, 4); /* 1 January 1980 */
    put(t, crc, 4);
    put(t, UINT32_MAX, 4), put(t, UINT32_MAX, 4);
    put(t, strlen(name), 2), put(t, extra, 2);
}

void zip_add(struct zip_writer *w, const char *name, uint64_t size, uint32_t crc, struct text *head)
{
    uint64_t bytes = zip_head_bytes(w, name), extra = bytes - LOCAL - strlen(name);
    struct text *d = &w->directory;
    text_clear(head);
    text_add(head, "PK\3\4", 4);
    put_entry(head, name, extra, crc);
    text_adds(head, name);
    put(head, EXTRA_ZIP64, 2), put(head, 16, 2), put(head, size, 8), put(head, size, 8);
    put(head, EXTRA_PADDING, 2), put(head, extra - EXTRA64 - 4, 2);
    while (head->len < bytes) text_add(head, "Z", 1);
    text_add(d, "PK\1\2", 4);
    put(d, 45, 2);
    put_entry(d, name, CENTRAL_EXTRA64, crc);
    put(d, 0, 2), put(d, 0, 2), put(d, 0, 2), put(d, 0, 4); /* comment, disk, attributes */
    put(d, UINT32_MAX, 4);
    text_adds(d, name);
    put(d, EXTRA_ZIP64, 2), put(d, 24, 2), put(d, size, 8), put(d, size, 8), put(d, w->at, 8);
    w->at += bytes + size;
    w->count++;
}

void zip_finish(struct zip_writer *w, struct text *tail)
{
    uint64_t begin = w->at, size = w->directory.len;
    text_clear(tail);
    text_add(tail, w->directory.data, size);
    text_add(tail, "PK\6\6", 4);
    put(tail, END64 - 12, 8), put(tail, 45, 2), put(tail, 45, 2), put(tail, 0, 4), put(tail, 0, 4);
    put(tail, w->count, 8), put(tail, w->count, 8), put(tail, size, 8), put(tail, begin, 8);
    text_add(tail, "PK\6\7", 4);
    put(tail, 0, 4), put(tail, begin + size, 8), put(tail, 1, 4);
    text_add(tail, "PK\5\6", 4);
    put(tail, 0, 4);
    put(tail, UINT16_MAX, 2), put(tail, UINT16_MAX, 2);
    put(tail, UINT32_MAX, 4), put(tail, UINT32_MAX, 4), put(tail, 0, 2);
}

void zip_writer_release(struct zip_writer *w) { text_release(&w->directory); }
