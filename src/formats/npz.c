// SPDX-License-Identifier: Apache-2.0
#include "formats/npz.h"

#include "base/file.h"

enum { NPY_ALIGN = 64, NPY_FIXED = 10 };

/* Magic, version 1.0, length of the dictionary, and this, filled up to the alignment. */
static void put_head(struct text *npy, const char *shape)
{
    struct text dictionary = {0};
    text_addf(&dictionary, "{'descr': '<i8', 'fortran_order': False, 'shape': (%s), }", shape);
    while ((NPY_FIXED + dictionary.len + 1) % NPY_ALIGN) text_adds(&dictionary, " ");
    text_adds(&dictionary, "\n");
    const unsigned char len[2] = {dictionary.len & 255, dictionary.len >> 8 & 255};
    text_add(npy, "\x93NUMPY\1\0", 8);
    text_add(npy, len, 2);
    text_add(npy, dictionary.data, dictionary.len);
    text_release(&dictionary);
}

static void put_number(struct text *npy, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)value >> (8 * i) & 255);
    text_add(npy, bytes, sizeof bytes);
}

static void add(struct npz_writer *w, const char *name, const struct text *npy)
{
    struct text file = {0}, head = {0};
    text_addf(&file, "%s.npy", name);
    zip_add(&w->zip, file.data, npy->len, zip_crc(0, npy->data, npy->len), &head);
    text_add(&w->bytes, head.data, head.len);
    text_add(&w->bytes, npy->data, npy->len);
    text_release(&file), text_release(&head);
}

void npz_add_list(struct npz_writer *w, const char *name, const int32_t *values, size_t count)
{
    struct text npy = {0}, shape = {0};
    text_addf(&shape, "%zu,", count);
    put_head(&npy, shape.data);
    for (size_t i = 0; i < count; i++) put_number(&npy, values[i]);
    add(w, name, &npy);
    text_release(&npy), text_release(&shape);
}

void npz_add_number(struct npz_writer *w, const char *name, int64_t value)
{
    struct text npy = {0};
    put_head(&npy, "");
    put_number(&npy, value);
    add(w, name, &npy);
    text_release(&npy);
}

enum status npz_close(struct npz_writer *w, const char *path)
{
    struct text tail = {0};
    zip_finish(&w->zip, &tail);
    text_add(&w->bytes, tail.data, tail.len);
    text_release(&tail);
    TRY(file_write(path, w->bytes.data, w->bytes.len));
    return STATUS_OK;
}

void npz_release(struct npz_writer *w)
{
    zip_writer_release(&w->zip);
    text_release(&w->bytes);
}
