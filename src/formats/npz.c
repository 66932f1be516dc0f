// SPDX-License-Identifier: Apache-2.0
#include "formats/npz.h"

#include "base/file.h"

enum { NPY_ALIGN = 64, NPY_PREFIX = 10 };

/* Appends the .npy header: magic, version 1.0, length, and a dict that is padded with spaces. */
static void add_header(struct text *npy, const char *shape)
{
    struct text dictionary = {0};
    text_addf(&dictionary, "{'descr': '<i8', 'fortran_order': False, 'shape': (%s), }", shape);
    while ((NPY_PREFIX + dictionary.len + 1) % NPY_ALIGN) text_adds(&dictionary, " ");
    text_adds(&dictionary, "\n");
    text_add(npy, "\x93NUMPY\1\0", 8);
    text_add_le(npy, dictionary.len, 2);
    text_add(npy, dictionary.data, dictionary.len);
    text_release(&dictionary);
}

static void add_entry(struct npz_writer *w, const char *name, const struct text *npy)
{
    struct text file = {0}, head = {0};
    text_addf(&file, "%s.npy", name);
    zip_writer_add(&w->zip, file.data, npy->len, zip_crc(0, npy->data, npy->len), &head);
    text_add(&w->bytes, head.data, head.len);
    text_add(&w->bytes, npy->data, npy->len);
    text_release(&file), text_release(&head);
}

void npz_add_array(struct npz_writer *w, const char *name, const int32_t *values, size_t count)
{
    struct text npy = {0}, shape = {0};
    text_addf(&shape, "%zu,", count);
    add_header(&npy, shape.data);
    for (size_t i = 0; i < count; i++) text_add_le(&npy, (uint64_t)values[i], 8);
    add_entry(w, name, &npy);
    text_release(&npy), text_release(&shape);
}

void npz_add_scalar(struct npz_writer *w, const char *name, int64_t value)
{
    struct text npy = {0};
    add_header(&npy, "");
    text_add_le(&npy, (uint64_t)value, 8);
    add_entry(w, name, &npy);
    text_release(&npy);
}

enum status npz_close(struct npz_writer *w, const char *path)
{
    struct text tail = {0};
    zip_writer_finish(&w->zip, &tail);
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
