// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_write.h"

#include "base/file.h"
#include "formats/pickle_write.h"
#include "formats/torch_writer.h"
#include "ops/rope.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE_BYTES 5000000000u
#define CHECKPOINT         "torch.distributed.checkpoint"

/* Where an item's archive is. */
struct archive_location {
    int file;
    uint64_t at, size;
};

struct dcp_writer {
    const struct torch_model *model;
    const char *folder;
    uint64_t max_bytes; /* of a file */
    struct dcp_items items;
    struct archive_location *locations;
    int fd, file; /* currently open; -1: none */
    char *path;   /* of the open file */
    uint64_t at;  /* its end */
};

static void format_file_name(int file, char name[32]) { snprintf(name, 32, "__0_%d.distcp", file); }

static enum status finish_file(struct dcp_writer *w)
{
    enum status st = STATUS_OK;
    if (w->fd >= 0 && fsync(w->fd)) FAIL_OUT(IO, "%s: %s", w->path, strerror(errno));
out:
    if (w->fd >= 0) close(w->fd);
    free(w->path);
    w->fd = -1, w->path = NULL;
    return st;
}

static enum status start_file(struct dcp_writer *w)
{
    char name[32];
    TRY(finish_file(w));
    format_file_name(++w->file, name);
    w->at = 0;
    w->path = file_join(w->folder, name);
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) FAIL(IO, "%s: %s", w->path, strerror(errno));
    return STATUS_OK;
}

/* Angles are rounded to f32 as in torchtitan. */
static enum status write_rope_table(const struct dcp_writer *w, const struct dcp_item *item,
                                    struct torch_writer *out)
{
    const struct model_shape *s = w->model->shape;
    const struct rope_angles angles = {s->K / 2, s->rope_theta, &s->scaling, s->max_context};
    size_t pairs = (size_t)s->K / 2;
    float *row = heap(2 * pairs * sizeof *row), *frequencies = heap(pairs * sizeof *frequencies);
    enum status st = STATUS_OK;
    for (size_t j = 0; j < pairs; j++) frequencies[j] = (float)rope_frequency((int)j, &angles);
    for (int64_t t = 0; t < item->tensor.shape[0] && !st; t++) {
        for (size_t j = 0; j < pairs; j++) {
            float angle = (float)t * frequencies[j];
            row[2 * j] = (float)cos((double)angle), row[2 * j + 1] = (float)sin((double)angle);
        }
        st = torch_writer_put(out, row, 2 * pairs * sizeof *row);
    }
    free(row), free(frequencies);
    return st;
}

static enum status write_elements(struct dcp_writer *w, const struct dcp_item *item,
                                  struct torch_writer *out)
{
    struct torch_model m = *w->model;
    if (item->kind == DCP_SCALAR) {
        TRY(torch_writer_put(out, item->number, sizeof item->number));
        return STATUS_OK;
    }
    if (item->kind == DCP_ROPE_TABLE) {
        TRY(write_rope_table(w, item, out));
        return STATUS_OK;
    }
    m.weights = *item->source, m.dtype = item->tensor.dtype;
    TRY(torch_model_stream(&m, item->index, torch_model_write, out));
    return STATUS_OK;
}

static uint64_t item_bytes(const struct dcp_item *item)
{
    if (item->kind == DCP_OBJECT) return item->pickle.len;
    uint64_t bytes = safetensors_dtype_bytes(item->tensor.dtype);
    for (int d = 0; d < item->tensor.num_dims; d++) bytes *= (uint64_t)item->tensor.shape[d];
    return bytes;
}

static enum status write_item(struct dcp_writer *w, size_t i)
{
    char no_name[] = "";
    const struct dcp_item *item = &w->items.all[i];
    struct torch_tensor alone = item->tensor;
    struct torch_writer out = {0};
    uint64_t bytes = item_bytes(item);
    enum status st = STATUS_OK;
    alone.name = no_name;
    if (w->fd < 0 || (w->at && (w->at >= w->max_bytes || bytes > w->max_bytes - w->at)))
        TRY_OUT(start_file(w));
    struct archive_location location = {.file = w->file, .at = w->at};
    if (item->kind != DCP_OBJECT) {
        TRY_OUT(torch_writer_open(&out, w->fd, w->path, w->at, &alone, 1));
        TRY_OUT(write_elements(w, item, &out));
    } else {
        TRY_OUT(torch_writer_open_pickle(&out, w->fd, w->path, w->at, &item->pickle));
    }
    TRY_OUT(torch_writer_close(&out, &location.size));
    w->locations[i] = location;
    w->at += location.size;
out:
    torch_writer_release(&out);
    return st;
}

/* Begins an object; the caller writes its fields (name, value), and end_object closes it. */
static void begin_object(struct text *t, const char *module, const char *class)
{
    pickle_write_global(t, module, class);
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
}

static void end_object(struct text *t) { pickle_write_setitems(t), pickle_write_build(t); }

static void write_size(struct text *t, const int64_t *values, int count)
{
    pickle_write_global(t, "torch", "Size");
    pickle_write_mark(t);
    pickle_write_int_tuple(t, values, count);
    pickle_write_tuple(t), pickle_write_reduce(t);
}

/* The state of TensorProperties is a tuple: dtype, layout, requires_grad, memory_format,
 * pin_memory. */
static void write_properties(struct text *t, enum safetensors_dtype dtype)
{
    pickle_write_global(t, CHECKPOINT ".metadata", "TensorProperties");
    pickle_write_empty_tuple(t), pickle_write_newobj(t), pickle_write_mark(t);
    pickle_write_global(t, "torch", torch_dtype_name(dtype));
    pickle_write_global(t, "torch.serialization", "_get_layout");
    pickle_write_mark(t), pickle_write_string(t, "torch.strided");
    pickle_write_tuple(t), pickle_write_reduce(t);
    pickle_write_bool(t, false);
    pickle_write_global(t, CHECKPOINT ".metadata", "_MEM_FORMAT_ENCODING");
    pickle_write_int_tuple(t, (const int64_t[]){0}, 1), pickle_write_reduce(t);
    pickle_write_bool(t, false);
    pickle_write_tuple(t), pickle_write_build(t);
}

static const int64_t zero_offsets[TORCH_DIMS];

static void write_tensor_metadata(struct text *t, const struct torch_tensor *tensor)
{
    begin_object(t, CHECKPOINT ".metadata", "TensorStorageMetadata");
    pickle_write_string(t, "properties"), write_properties(t, tensor->dtype);
    pickle_write_string(t, "size"), write_size(t, tensor->shape, tensor->num_dims);
    pickle_write_string(t, "chunks"), pickle_write_empty_list(t), pickle_write_mark(t);
    begin_object(t, CHECKPOINT ".metadata", "ChunkStorageMetadata");
    pickle_write_string(t, "offsets"), write_size(t, zero_offsets, tensor->num_dims);
    pickle_write_string(t, "sizes"), write_size(t, tensor->shape, tensor->num_dims);
    end_object(t);
    pickle_write_appends(t);
    end_object(t);
}

static void write_item_metadata(struct text *t, const struct dcp_item *item)
{
    if (item->kind != DCP_OBJECT) {
        write_tensor_metadata(t, &item->tensor);
        return;
    }
    pickle_write_global(t, CHECKPOINT ".metadata", "BytesStorageMetadata");
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
}

/* The item's path of keys in the nested state_dict. */
static void write_planner_keys(struct text *t, const struct dcp_item *item)
{
    const char *dot = item->is_nested ? strchr(item->name, '.') : NULL;
    pickle_write_mark(t);
    if (dot) {
        char *first = heap_string(item->name, (size_t)(dot - item->name));
        pickle_write_string(t, first);
        free(first);
    }
    pickle_write_string(t, dot ? dot + 1 : item->name);
    pickle_write_tuple(t);
}

/* Python objects have no offset. */
static void write_storage_entry(struct text *t, const struct dcp_item *item,
                                const struct archive_location *location)
{
    char name[32];
    format_file_name(location->file, name);
    begin_object(t, CHECKPOINT ".metadata", "MetadataIndex");
    pickle_write_string(t, "fqn"), pickle_write_string(t, item->name);
    pickle_write_string(t, "index");
    if (item->kind != DCP_OBJECT) {
        pickle_write_int(t, 0);
        pickle_write_string(t, "offset"), write_size(t, zero_offsets, item->tensor.num_dims);
    } else {
        pickle_write_none(t);
    }
    end_object(t);
    begin_object(t, CHECKPOINT ".filesystem", "_StorageInfo");
    pickle_write_string(t, "relative_path"), pickle_write_string(t, name);
    pickle_write_string(t, "offset"), pickle_write_int(t, (int64_t)location->at);
    pickle_write_string(t, "length"), pickle_write_int(t, (int64_t)location->size);
    end_object(t);
}

static void write_metadata(const struct dcp_writer *w, struct text *t)
{
    pickle_write_proto(t);
    begin_object(t, CHECKPOINT ".metadata", "Metadata");
    pickle_write_string(t, "state_dict_metadata"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < w->items.count; i++) {
        pickle_write_string(t, w->items.all[i].name);
        write_item_metadata(t, &w->items.all[i]);
    }
    pickle_write_setitems(t);
    pickle_write_string(t, "planner_data"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < w->items.count; i++) {
        pickle_write_string(t, w->items.all[i].name);
        write_planner_keys(t, &w->items.all[i]);
    }
    pickle_write_setitems(t);
    pickle_write_string(t, "storage_data"), pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < w->items.count; i++)
        write_storage_entry(t, &w->items.all[i], &w->locations[i]);
    pickle_write_setitems(t);
    pickle_write_string(t, "storage_meta"), pickle_write_none(t);
    pickle_write_string(t, "version"), pickle_write_none(t);
    end_object(t);
    pickle_write_stop(t);
}

enum status dcp_write(const struct torch_model *m, const struct dcp_target *target,
                      const struct dcp_run *run, uint64_t file_bytes, const char *folder)
{
    struct dcp_writer w = {.model = m, .folder = folder, .fd = -1, .file = -1};
    struct text metadata = {0};
    char *path = file_join(folder, ".metadata");
    enum status st = STATUS_OK;
    w.max_bytes = file_bytes ? file_bytes : DEFAULT_FILE_BYTES;
    dcp_items_make(&w.items, m, target, run);
    w.locations = heap(w.items.count * sizeof *w.locations);
    for (size_t i = 0; i < w.items.count; i++) TRY_OUT(write_item(&w, i));
    TRY_OUT(finish_file(&w));
    write_metadata(&w, &metadata);
    TRY_OUT(file_write(path, metadata.data, metadata.len));
out:
    if (w.fd >= 0) close(w.fd);
    free(w.path);
    dcp_items_release(&w.items);
    free(w.locations);
    text_release(&metadata);
    free(path);
    return st;
}
