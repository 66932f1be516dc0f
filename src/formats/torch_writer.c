// SPDX-License-Identifier: Apache-2.0
#include "formats/torch_writer.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

static uint64_t bytes_of(const struct torch_tensor *t)
{
    uint64_t bytes = safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->num_dims; d++) bytes *= (uint64_t)t->shape[d];
    return bytes;
}

static enum status put_file(struct torch_writer *w, const char *name, const void *bytes, size_t len)
{
    struct text head = {0};
    uint64_t at = w->base + w->zip.at;
    zip_add(&w->zip, name, len, zip_crc(0, bytes, len), &head);
    enum status st = file_write_at(w->fd, w->path, head.data, head.len, at);
    if (!st) st = file_write_at(w->fd, w->path, bytes, len, at + head.len);
    text_release(&head);
    return st;
}

static enum status put_files(struct torch_writer *w, const struct text *pickle)
{
    static const char *const files[][2] = {{"archive/.format_version", "1"},
                                           {"archive/.storage_alignment", "64"},
                                           {"archive/byteorder", "little"},
                                           {"archive/version", "3\n"}};
    TRY(put_file(w, "archive/data.pkl", pickle->data, pickle->len));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        TRY(put_file(w, files[i][0], files[i][1], strlen(files[i][1])));
    return STATUS_OK;
}

static void entry_name(size_t key, char name[40]) { snprintf(name, 40, "archive/data/%zu", key); }

/* Its header comes when its checksum is known; its numbers go behind it. */
static void begin_tensor(struct torch_writer *w)
{
    char name[40];
    entry_name(w->next, name);
    w->left = bytes_of(&w->tensors[w->next]);
    w->at = w->zip.at + zip_head_bytes(&w->zip, name);
    w->crc = 0;
}

enum status torch_writer_open_pickle(struct torch_writer *w, int fd, const char *path,
                                     uint64_t base, const struct text *pickle)
{
    *w = (struct torch_writer){.fd = fd, .path = path, .base = base};
    TRY(put_files(w, pickle));
    return STATUS_OK;
}

enum status torch_writer_open(struct torch_writer *w, int fd, const char *path, uint64_t base,
                              const struct torch_tensor *tensors, size_t count)
{
    struct text pickle = {0};
    torch_pickle(tensors, count, &pickle);
    enum status st = torch_writer_open_pickle(w, fd, path, base, &pickle);
    text_release(&pickle);
    w->tensors = tensors;
    if (count) begin_tensor(w);
    return st;
}

static enum status end_tensor(struct torch_writer *w)
{
    char name[40];
    struct text head = {0};
    uint64_t at = w->base + w->zip.at;
    entry_name(w->next, name);
    zip_add(&w->zip, name, bytes_of(&w->tensors[w->next]), w->crc, &head);
    enum status st = file_write_at(w->fd, w->path, head.data, head.len, at);
    text_release(&head);
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
    zip_finish(&w->zip, &tail);
    enum status st = file_write_at(w->fd, w->path, tail.data, tail.len, w->base + w->zip.at);
    *size = w->zip.at + tail.len;
    text_release(&tail);
    return st;
}

void torch_writer_release(struct torch_writer *w) { zip_writer_release(&w->zip); }
