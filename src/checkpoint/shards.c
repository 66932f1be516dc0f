// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One tensor of one file: its description, place and source. */
struct shard_tensor {
    struct safetensors_tensor tensor; /* first: sorted by name */
    const struct tensor_place *place;
    const struct tensor_source *source;
    int file;
};

static enum status read_flat(void *context, const struct tensor_place *t, const float **values)
{
    *values = (const float *)context + t->offset;
    return STATUS_OK;
}

struct tensor_source tensor_source_flat(const float *flat)
{
    return (struct tensor_source){read_flat, (void *)(uintptr_t)flat};
}

/* Every tensor in the model's order, and the file it goes to. */
static struct shard_tensor *cut(const struct shards *s, const struct layout *l, size_t *count,
                                int *files)
{
    struct shard_tensor *all = heap((size_t)l->num_tensors * s->num_parts * sizeof *all);
    uint64_t bytes = 0;
    *count = 0, *files = 1;
    for (int i = 0; i < l->num_tensors; i++)
        for (size_t part = 0; part < s->num_parts; part++) {
            const struct tensor_place *t = &l->tensors[i];
            char stem[96], name[160];
            tensor_place_name(t, true, stem);
            int len = snprintf(name, sizeof name, "%s%s", stem, s->parts[part]);
            uint64_t size = t->elements * safetensors_dtype_bytes(s->dtype);
            if (bytes && bytes + size > s->most_bytes) bytes = 0, ++*files;
            bytes += size;
            bool vector = params[t->id].axes[1] == 0;
            all[(*count)++] = (struct shard_tensor){
                .tensor = {.name = heap_string(name, (size_t)len),
                           .dtype = s->dtype,
                           .num_dims = vector ? 1 : 2,
                           .shape = {t->rows, vector ? 0 : t->columns}},
                .place = t,
                .source = &s->sources[part],
                .file = *files,
            };
        }
    return all;
}

static void file_name(const struct shards *s, int file, int files, char *name, size_t size)
{
    if (files == 1 && s->index == SHARDS_INDEX_IF_MANY)
        snprintf(name, size, "%s.safetensors", s->stem);
    else
        snprintf(name, size, "%s-%05d-of-%05d.safetensors", s->stem, file, files);
}

static enum status write_tensor(const struct shards *s, const struct shard_tensor *p,
                                struct sealed_file *f, void *buffer)
{
    enum { PIECE = MANIFEST_CHUNK / 4 };
    const float *values;
    TRY(p->source->read(p->source->context, p->place, &values));
    for (size_t at = 0; at < p->place->elements; at += PIECE) {
        size_t left = p->place->elements - at, n = left < PIECE ? left : PIECE;
        const void *bytes = values + at;
        if (s->dtype != SAFETENSORS_F32) {
            safetensors_convert(values + at, n, s->dtype, buffer);
            bytes = buffer;
        }
        TRY(sealed_write(f, bytes, n * safetensors_dtype_bytes(s->dtype)));
    }
    return STATUS_OK;
}

static enum status write_file(const struct shards *s, struct shard_tensor *pieces, size_t count,
                              const char *name, struct manifest *m, uint64_t *total)
{
    struct safetensors_tensor *tensors = heap(count * sizeof *tensors);
    struct sealed_file f = {.fd = -1};
    struct text header = {0};
    void *buffer = heap(MANIFEST_CHUNK);
    uint64_t bytes;
    enum status st = STATUS_OK;
    qsort(pieces, count, sizeof *pieces, safetensors_by_name);
    for (size_t i = 0; i < count; i++) tensors[i] = pieces[i].tensor;
    safetensors_header(tensors, count, &header, &bytes);
    *total += bytes;
    TRY_OUT(sealed_open(&f, m, name));
    TRY_OUT(sealed_write(&f, header.data, header.len));
    for (size_t i = 0; i < count; i++) TRY_OUT(write_tensor(s, &pieces[i], &f, buffer));
    TRY_OUT(sealed_close(&f));
out:
    sealed_abandon(&f);
    text_release(&header);
    free(tensors);
    free(buffer);
    return st;
}

static enum status write_index(const struct shards *s, const struct shard_tensor *all, size_t count,
                               int files, uint64_t total, struct manifest *m)
{
    struct text t = {0};
    char name[96];
    text_addf(&t, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {\n",
              (unsigned long long)total);
    for (size_t i = 0; i < count; i++) {
        text_adds(&t, i ? ",\n  " : "  ");
        json_quote(&t, all[i].tensor.name);
        file_name(s, all[i].file, files, name, sizeof name);
        text_addf(&t, ": \"%s\"", name);
    }
    text_adds(&t, "\n}}\n");
    snprintf(name, sizeof name, "%s.safetensors.index.json", s->stem);
    enum status st = sealed_put(m, name, t.data, t.len);
    text_release(&t);
    return st;
}

enum status shards_write(const struct shards *s, const struct layout *l, struct manifest *m)
{
    size_t count, begin = 0;
    int files;
    uint64_t total = 0;
    enum status st = STATUS_OK;
    struct shard_tensor *all = cut(s, l, &count, &files);
    for (int file = 1; file <= files; file++) {
        char name[96];
        size_t end = begin;
        while (end < count && all[end].file == file) end++;
        file_name(s, file, files, name, sizeof name);
        TRY_OUT(write_file(s, all + begin, end - begin, name, m, &total));
        begin = end;
    }
    bool index = s->index == SHARDS_INDEX || (s->index == SHARDS_INDEX_IF_MANY && files > 1);
    if (index) TRY_OUT(write_index(s, all, count, files, total, m));
out:
    for (size_t i = 0; i < count; i++) free(all[i].tensor.name);
    free(all);
    return st;
}
