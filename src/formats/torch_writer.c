// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_writer.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

static uint64_t tensor_bytes(const struct torch_tensor *t)
{
    uint64_t bytes = safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->num_dims; d++) bytes *= (uint64_t)t->shape[d];
    return bytes;
}

static enum status write_entry(struct torch_writer *w, const char *name, const void *bytes,
                               size_t len)
{
    struct text header = {0};
    uint64_t at = w->base + w->zip.at;
    zip_writer_add(&w->zip, name, len, zip_crc(0, bytes, len), &header);
    enum status st = file_write_at(w->fd, w->path, header.data, header.len, at);
    if (!st) st = file_write_at(w->fd, w->path, bytes, len, at + header.len);
    text_release(&header);
    return st;
}

static enum status write_fixed_entries(struct torch_writer *w, const struct text *pickle)
{
    static const char *const files[][2] = {{"archive/.format_version", "1"},
                                           {"archive/.storage_alignment", "64"},
                                           {"archive/byteorder", "little"},
                                           {"archive/version", "3\n"}};
    TRY(write_entry(w, "archive/data.pkl", pickle->data, pickle->len));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        TRY(write_entry(w, files[i][0], files[i][1], strlen(files[i][1])));
    return STATUS_OK;
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
    TRY(write_fixed_entries(w, pickle));
    return STATUS_OK;
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
