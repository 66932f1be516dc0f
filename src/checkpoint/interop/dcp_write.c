// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_write.h"

#include "base/file.h"
#include "formats/pickle_write.h"
#include "formats/torch_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 5000000000u
#define CHECKPOINT "torch.distributed.checkpoint"

/* The archive that an item is in. */
struct place {
    int file;
    uint64_t at, size;
};

struct directory {
    const struct torch_model *model;
    const char *folder;
    uint64_t most; /* bytes of a file */
    struct dcp_items items;
    struct place *places;
    int fd, file; /* under way; -1: none */
    char *path;   /* of it */
    uint64_t at;  /* its end */
};

static void file_name(int file, char name[32]) { snprintf(name, 32, "__0_%d.distcp", file); }

static enum status end_file(struct directory *d)
{
    enum status st = STATUS_OK;
    if (d->fd >= 0 && fsync(d->fd)) FAIL_OUT(IO, "%s: %s", d->path, strerror(errno));
out:
    if (d->fd >= 0) close(d->fd);
    free(d->path);
    d->fd = -1, d->path = NULL;
    return st;
}

static enum status begin_file(struct directory *d)
{
    char name[32];
    TRY(end_file(d));
    file_name(++d->file, name);
    d->at = 0;
    d->path = file_join(d->folder, name);
    d->fd = open(d->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (d->fd < 0) FAIL(IO, "%s: %s", d->path, strerror(errno));
    return STATUS_OK;
}

static enum status write_numbers(struct directory *d, const struct dcp_item *item,
                                 struct torch_writer *w)
{
    struct torch_model m = *d->model;
    if (item->index < 0) {
        TRY(torch_writer_put(w, item->number, safetensors_dtype_bytes(item->tensor.dtype)));
        return STATUS_OK;
    }
    m.weights = *item->source, m.dtype = item->tensor.dtype;
    TRY(torch_model_stream(&m, item->index, torch_model_write, w));
    return STATUS_OK;
}

static uint64_t bytes_of(const struct directory *d, const struct dcp_item *item)
{
    if (item->index < 0) return item->pickle.len;
    return d->model->layout->tensors[item->index].elements *
           safetensors_dtype_bytes(item->tensor.dtype);
}

static enum status write_item(struct directory *d, size_t i)
{
    char nameless[] = "";
    const struct dcp_item *item = &d->items.all[i];
    struct torch_tensor alone = item->tensor;
    struct torch_writer w = {0};
    uint64_t bytes = bytes_of(d, item);
    enum status st = STATUS_OK;
    alone.name = nameless;
    if (d->fd < 0 || (d->at && (d->at >= d->most || bytes > d->most - d->at)))
        TRY_OUT(begin_file(d));
    struct place place = {.file = d->file, .at = d->at};
    if (item->is_tensor) {
        TRY_OUT(torch_writer_open(&w, d->fd, d->path, d->at, &alone, 1));
        TRY_OUT(write_numbers(d, item, &w));
    } else {
        TRY_OUT(torch_writer_open_pickle(&w, d->fd, d->path, d->at, &item->pickle));
    }
    TRY_OUT(torch_writer_close(&w, &place.size));
    d->places[i] = place;
    d->at += place.size;
out:
    torch_writer_release(&w);
    return st;
}

/* An object whose fields, names and values, are then put; end_object closes it. */
static void begin_object(struct text *t, const char *module, const char *class)
{
    pickle_write_global(t, module, class);
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
}

static void end_object(struct text *t) { pickle_write_setitems(t), pickle_write_build(t); }

static void put_size(struct text *t, const int64_t *values, int count)
{
    pickle_write_global(t, "torch", "Size");
    pickle_write_mark(t);
    pickle_write_int_tuple(t, values, count);
    pickle_write_tuple(t), pickle_write_reduce(t);
}

/* Its state is a tuple: dtype, layout, requires_grad, memory format, pin_memory. */
static void put_properties(struct text *t, enum safetensors_dtype dtype)
{
    pickle_write_global(t, CHECKPOINT ".metadata", "TensorProperties");
    pickle_write_empty_tuple(t), pickle_write_newobj(t), pickle_write_mark(t);
    pickle_write_global(t, "torch",
                        dtype == SAFETENSORS_F32    ? "float32"
                        : dtype == SAFETENSORS_I32  ? "int32"
                        : dtype == SAFETENSORS_I64  ? "int64"
                        : dtype == SAFETENSORS_BF16 ? "bfloat16"
                                                    : "float16");
    pickle_write_global(t, "torch.serialization", "_get_layout");
    pickle_write_mark(t), pickle_write_string(t, "torch.strided");
    pickle_write_tuple(t), pickle_write_reduce(t);
    pickle_write_bool(t, false);
    pickle_write_global(t, CHECKPOINT ".metadata", "_MEM_FORMAT_ENCODING");
    pickle_write_int_tuple(t, (const int64_t[]){0}, 1), pickle_write_reduce(t);
    pickle_write_bool(t, false);
    pickle_write_tuple(t), pickle_write_build(t);
}

static const int64_t origin[TORCH_DIMS];

static void put_tensor(struct text *t, const struct torch_tensor *tensor)
{
    begin_object(t, CHECKPOINT ".metadata", "TensorStorageMetadata");
    pickle_write_string(t, "properties"), put_properties(t, tensor->dtype);
    pickle_write_string(t, "size"), put_size(t, tensor->shape, tensor->num_dims);
    pickle_write_string(t, "chunks"), pickle_write_empty_list(t), pickle_write_mark(t);
    begin_object(t, CHECKPOINT ".metadata", "ChunkStorageMetadata");
    pickle_write_string(t, "offsets"), put_size(t, origin, tensor->num_dims);
    pickle_write_string(t, "sizes"), put_size(t, tensor->shape, tensor->num_dims);
    end_object(t);
    pickle_write_appends(t);
    end_object(t);
}

static void put_described(struct text *t, const struct dcp_item *item)
{
    if (item->is_tensor) {
        put_tensor(t, &item->tensor);
        return;
    }
    pickle_write_global(t, CHECKPOINT ".metadata", "BytesStorageMetadata");
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
}

/* The keys that lead to it in the dictionaries that were saved. */
static void put_keys(struct text *t, const struct dcp_item *item)
{
    const char *dot = item->split ? strchr(item->name, '.') : NULL;
    pickle_write_mark(t);
    if (dot) {
        char *first = heap_string(item->name, (size_t)(dot - item->name));
        pickle_write_string(t, first);
        free(first);
    }
    pickle_write_string(t, dot ? dot + 1 : item->name);
    pickle_write_tuple(t);
}

/* An object has no place in a tensor. */
static void put_place(struct text *t, const struct dcp_item *item, const struct place *place)
{
    char name[32];
    file_name(place->file, name);
    begin_object(t, CHECKPOINT ".metadata", "MetadataIndex");
    pickle_write_string(t, "fqn"), pickle_write_string(t, item->name);
    pickle_write_string(t, "index");
    if (item->is_tensor) {
        pickle_write_int(t, 0);
        pickle_write_string(t, "offset"), put_size(t, origin, item->tensor.num_dims);
    } else {
        pickle_write_none(t);
    }
    end_object(t);
    begin_object(t, CHECKPOINT ".filesystem", "_StorageInfo");
    pickle_write_string(t, "relative_path"), pickle_write_string(t, name);
    pickle_write_string(t, "offset"), pickle_write_int(t, (int64_t)place->at);
    pickle_write_string(t, "length"), pickle_write_int(t, (int64_t)place->size);
    end_object(t);
}

static void put_metadata(const struct directory *d, struct text *t)
{
    pickle_write_proto(t);
    begin_object(t, CHECKPOINT ".metadata", "Metadata");
    pickle_write_string(t, "state_dict_metadata"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < d->items.count; i++) {
        pickle_write_string(t, d->items.all[i].name);
        put_described(t, &d->items.all[i]);
    }
    pickle_write_setitems(t);
    pickle_write_string(t, "planner_data"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < d->items.count; i++) {
        pickle_write_string(t, d->items.all[i].name);
        put_keys(t, &d->items.all[i]);
    }
    pickle_write_setitems(t);
    pickle_write_string(t, "storage_data"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < d->items.count; i++) put_place(t, &d->items.all[i], &d->places[i]);
    pickle_write_setitems(t);
    pickle_write_string(t, "storage_meta"), pickle_write_none(t);
    pickle_write_string(t, "version"), pickle_write_none(t);
    end_object(t);
    pickle_write_stop(t);
}

enum status dcp_write(const struct torch_model *m, const struct dcp_run *run, uint64_t file_bytes,
                      const char *folder)
{
    struct directory d = {.model = m, .folder = folder, .fd = -1, .file = -1};
    struct text metadata = {0};
    char *path = file_join(folder, ".metadata");
    enum status st = STATUS_OK;
    d.most = file_bytes ? file_bytes : FILE_BYTES;
    dcp_items_make(&d.items, m, run);
    d.places = heap(d.items.count * sizeof *d.places);
    for (size_t i = 0; i < d.items.count; i++) TRY_OUT(write_item(&d, i));
    TRY_OUT(end_file(&d));
    put_metadata(&d, &metadata);
    TRY_OUT(file_write(path, metadata.data, metadata.len));
out:
    if (d.fd >= 0) close(d.fd);
    free(d.path);
    dcp_items_release(&d.items);
    free(d.places);
    text_release(&metadata);
    free(path);
    return st;
}
