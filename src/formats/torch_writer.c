// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_writer.h"

#include "base/file.h"

#include <stdio.h>

static uint64_t tensor_bytes(const struct torch_tensor *t)
{
    uint64_t bytes = safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->num_dims; d++) bytes *= (uint64_t)t->shape[d];
    return bytes;
}

static void add_entry(struct zip_writer *zip, const char *name, const struct text *bytes,
                      struct text *out)
{
    struct text header = {0};
    zip_writer_add(zip, name, bytes->len, zip_crc(0, bytes->data, bytes->len), &header);
    text_add(out, header.data, header.len);
    text_add(out, bytes->data, bytes->len);
    text_release(&header);
}

static void add_fixed_entries(struct zip_writer *zip, const struct text *pickle, struct text *out)
{
    static const char *const files[][2] = {{"archive/.format_version", "1"},
                                           {"archive/.storage_alignment", "64"},
                                           {"archive/byteorder", "little"},
                                           {"archive/version", "3\n"}};
    struct text bytes = {0};
    add_entry(zip, "archive/data.pkl", pickle, out);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        text_clear(&bytes), text_adds(&bytes, files[i][1]);
        add_entry(zip, files[i][0], &bytes, out);
    }
    text_release(&bytes);
}

void torch_writer_pickle(const struct text *pickle, struct text *archive)
{
    struct zip_writer zip = {0};
    struct text tail = {0};
    text_clear(archive);
    add_fixed_entries(&zip, pickle, archive);
    zip_writer_finish(&zip, &tail);
    text_add(archive, tail.data, tail.len);
    text_release(&tail);
    zip_writer_release(&zip);
}

static void entry_name(size_t key, char name[40]) { snprintf(name, 40, "archive/data/%zu", key); }

/* Leaves space for the local header, which end_tensor writes once the CRC is known. */
static void begin_tensor(struct torch_writer *w)
{
    char name[40];
    entry_name(w->next, name);
    w->left = tensor_bytes(&w->tensors[w->next]);
    w->at = w->zip.at + zip_writer_header_bytes(&w->zip, name);
    w->crc = 0;
}

enum status torch_writer_open_pickle(struct torch_writer *w, int fd, const char *path,
                                     uint64_t base, const struct text *pickle)
{
    *w = (struct torch_writer){.fd = fd, .path = path, .base = base};
    struct text entries = {0};
    add_fixed_entries(&w->zip, pickle, &entries);
    enum status st = file_write_at(fd, path, entries.data, entries.len, base);
    text_release(&entries);
    return st;
}

enum status torch_writer_open(struct torch_writer *w, int fd, const char *path, uint64_t base,
                              const struct torch_tensor *tensors, size_t count)
{
    struct text pickle = {0};
    torch_write_pickle(tensors, count, &pickle);
    enum status st = torch_writer_open_pickle(w, fd, path, base, &pickle);
    text_release(&pickle);
    w->tensors = tensors;
    if (count) begin_tensor(w);
    return st;
}

static enum status end_tensor(struct torch_writer *w)
{
    char name[40];
    struct text header = {0};
    uint64_t at = w->base + w->zip.at;
    entry_name(w->next, name);
    zip_writer_add(&w->zip, name, tensor_bytes(&w->tensors[w->next]), w->crc, &header);
    enum status st = file_write_at(w->fd, w->path, header.data, header.len, at);
    text_release(&header);
    w->next++;
    return st;
}

enum status torch_writer_put(struct torch_writer *w, const void *bytes, size_t len)
{
    if (!w->left) begin_tensor(w);
    BUG_IF(len > w->left);
    TRY(file_write_at(w->fd, w->path, bytes, len, w->base + w->at));
    w->crc = zip_crc(w->crc, bytes, len);
    w->at += len, w->left -= len;
    if (!w->left) TRY(end_tensor(w));
    return STATUS_OK;
}

enum status torch_writer_close(struct torch_writer *w, uint64_t *size)
{
    struct text tail = {0};
    BUG_IF(w->left);
    zip_writer_finish(&w->zip, &tail);
    enum status st = file_write_at(w->fd, w->path, tail.data, tail.len, w->base + w->zip.at);
    *size = w->zip.at + tail.len;
    text_release(&tail);
    return st;
}

void torch_writer_release(struct torch_writer *w) { zip_writer_release(&w->zip); }
