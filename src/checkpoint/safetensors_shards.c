// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_shards.h"

#include "base/json.h"
#include "base/progress.h"
#include "checkpoint/interop/hf_fused.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of one file: `count` tensors of the layout, one after the other; with its source. */
struct file_tensor {
    struct safetensors_tensor tensor; /* first member: sorted by its name */
    int index, count;                 /* in the layout */
    const struct tensor_source *source;
    int file;
};

/* All tensors in the model's order, assigned to files. */
struct file_assignment {
    struct file_tensor *tensors; /* owned */
    size_t count;
    int num_files;
    uint64_t bytes; /* of the tensors of the files written so far */
};

/* A file being written. */
struct output_file {
    const struct file_tensor *tensors; /* in the order of their data */
    size_t count;
    struct text header;
    uint64_t size, block_bytes;
    struct manifest_file out;
    struct file_block *blocks; /* of one round, one per rank */
    void *bytes[2];            /* of this rank's block of one round, and of the next one */
};

/* The tensor of a file that begins with tensor `i` of the layout. */
static struct file_tensor file_tensor_at(const struct safetensors_shards *s, int i, size_t part)
{
    const struct tensor_slot *t = &s->exchange->layout->tensors[i];
    const int count = s->fuses ? hf_fused_count(t->id) : 1;
    const bool vector = params[t->id].axes[1] == 0;
    char stem[96], name[160];
    int64_t rows = 0;
    layout_tensor_name(t, true, stem);
    if (count > 1) hf_fused_rename(t->id, stem, sizeof stem);
    int len = snprintf(name, sizeof name, "%s%s", stem, s->parts[part]);
    for (int k = 0; k < count; k++) rows += t[k].rows;
    return (struct file_tensor){.tensor = {.name = heap_string(name, (size_t)len),
                                           .dtype = s->dtype,
                                           .num_dims = vector ? 1 : 2,
                                           .shape = {rows, vector ? 0 : t->columns}},
                                .index = i,
                                .count = count,
                                .source = &s->sources[part]};
}

static void assign_files(const struct safetensors_shards *s, struct file_assignment *a)
{
    const struct layout *l = s->exchange->layout;
    uint64_t bytes = 0;
    a->tensors = heap((size_t)l->num_tensors * s->num_parts * sizeof *a->tensors);
    a->num_files = 1;
    for (int i = 0, count = 0; i < l->num_tensors; i += count)
        for (size_t part = 0; part < s->num_parts; part++) {
            struct file_tensor t = file_tensor_at(s, i, part);
            uint64_t size = 0;
            count = t.count;
            if (s->omitted && param_set_has(s->omitted[part], l->tensors[i].id)) {
                free(t.tensor.name);
                continue;
            }
            for (int k = 0; k < count; k++)
                size += l->tensors[i + k].elements * safetensors_dtype_bytes(s->dtype);
            if (bytes && bytes + size > s->max_bytes) bytes = 0, a->num_files++;
            bytes += size;
            t.file = a->num_files;
            a->tensors[a->count++] = t;
        }
}

static void format_file_name(const struct safetensors_shards *s, int file, int files, char *name,
                             size_t size)
{
    if (files == 1 && s->index == INDEX_IF_MANY)
        snprintf(name, size, "%s.safetensors", s->stem);
    else
        snprintf(name, size, "%s-%05d-of-%05d.safetensors", s->stem, file, files);
}

/* A tensor of the layout, at byte `begin` of the file. */
struct placed_tensor {
    int index;
    uint64_t begin, bytes;
    const struct tensor_source *source;
};

/* Adds its elements in bytes [from, to) of the file. */
static void add_span(struct file_block *b, const struct placed_tensor *t, size_t element_bytes,
                     uint64_t from, uint64_t to)
{
    uint64_t end = t->begin + t->bytes;
    uint64_t first = t->begin > from ? t->begin : from, last = end < to ? end : to;
    if (first >= last) return;
    b->spans = heap_grow(b->spans, b->count + 1, sizeof *b->spans);
    b->spans[b->count++] = (struct block_span){.tensor = t->index,
                                               .first = (first - t->begin) / element_bytes,
                                               .count = (last - first) / element_bytes,
                                               .at = (first - from) / element_bytes,
                                               .source = t->source};
}

/* Lists the tensors' elements in bytes [from, to) of the file. */
static void find_spans(const struct safetensors_shards *s, const struct output_file *f,
                       uint64_t from, uint64_t to, struct file_block *b)
{
    const size_t element_bytes = safetensors_dtype_bytes(s->dtype);
    b->count = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct file_tensor *t = &f->tensors[i];
        struct placed_tensor p = {.begin = f->header.len + t->tensor.begin, .source = t->source};
        for (int k = 0; k < t->count; k++, p.begin += p.bytes) {
            p.index = t->index + k;
            p.bytes = s->exchange->layout->tensors[p.index].elements * element_bytes;
            add_span(b, &p, element_bytes, from, to);
        }
    }
}

/* This rank's block of a round: where it begins in the file, and its length, 0 for none. */
struct own_block {
    uint64_t at, len;
};

static struct own_block find_own_block(const struct safetensors_shards *s,
                                       const struct output_file *f, uint64_t round)
{
    const struct comm *ranks = s->exchange->ranks;
    uint64_t block = round * (uint64_t)ranks->size + (uint64_t)ranks->rank;
    uint64_t at = block * f->block_bytes, left = at < f->size ? f->size - at : 0;
    return (struct own_block){at, left < f->block_bytes ? left : f->block_bytes};
}

/* Assembles and checksums a block per rank.  A failure is this rank's own. */
static enum status fill_round(const struct safetensors_shards *s, struct output_file *f,
                              uint64_t round)
{
    int size = s->exchange->ranks->size;
    struct own_block own = find_own_block(s, f, round);
    void *bytes = f->bytes[round % 2];
    for (int r = 0; r < size; r++) {
        uint64_t from = (round * (uint64_t)size + (uint64_t)r) * f->block_bytes;
        find_spans(s, f, from, from + f->block_bytes, &f->blocks[r]);
    }
    TRY(block_exchange_fill(s->exchange, f->blocks, s->dtype, bytes));
    if (own.at < f->header.len) {
        size_t left = f->header.len - own.at;
        memcpy(bytes, f->header.data + own.at, left < own.len ? left : own.len);
    }
    if (own.len) manifest_file_checksum_at(&f->out, bytes, own.len, own.at);
    progress_add((double)own.len);
    return STATUS_OK;
}

static enum status write_round(const struct safetensors_shards *s, struct output_file *f,
                               uint64_t round)
{
    struct own_block own = find_own_block(s, f, round);
    if (own.len) TRY(manifest_file_write_at(&f->out, f->bytes[round % 2], own.len, own.at));
    return STATUS_OK;
}

/* This thread assembles a round while another one, if there is one, writes the round before. */
static enum status fill_and_write(const struct safetensors_shards *s, struct output_file *f,
                                  uint64_t round, uint64_t num_rounds)
{
    bool fills = round < num_rounds;
    bool writes = round > 0;
    struct failure filled = {0}, written = {0};
#pragma omp parallel num_threads(2) if (fills && writes && omp_get_max_threads() > 1)
    {
        if (fills && omp_get_thread_num() == 0) status_save(&filled, fill_round(s, f, round));
        if (writes && omp_get_thread_num() == omp_get_num_threads() - 1)
            status_save(&written, write_round(s, f, round - 1));
    }
    TRY(status_restore(&written));
    return status_restore(&filled);
}

/* Chunks per block: few enough that small files are divided among the ranks, too. */
static uint64_t block_bytes(uint64_t file_bytes, size_t element_bytes, int ranks)
{
    uint64_t max_chunks = TENSOR_SOURCE_ELEMENTS * element_bytes / MANIFEST_CHUNK;
    uint64_t chunks = (file_bytes + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK;
    uint64_t chunks_per_rank = (chunks + (uint64_t)ranks - 1) / (uint64_t)ranks;
    return (chunks_per_rank < max_chunks ? chunks_per_rank : max_chunks) * MANIFEST_CHUNK;
}

static enum status open_file(struct output_file *f, const char *name, struct manifest *m,
                             const struct comm *ranks)
{
    bool is_root = ranks->rank == 0;
    TRY(comm_agree(ranks, is_root ? manifest_file_open(&f->out, m, name) : STATUS_OK));
    TRY(comm_agree(ranks, is_root ? STATUS_OK : manifest_file_join(&f->out, m, name)));
    manifest_file_set_size(&f->out, f->size);
    return STATUS_OK;
}

/* Each chunk was written, and its checksum set, by one rank; on the others it is 0. */
static enum status combine_checksums(const struct comm *ranks, uint32_t *checksums, size_t count)
{
    int64_t *values = heap(count * sizeof *values + 1);
    for (size_t i = 0; i < count; i++) values[i] = checksums[i];
    enum status st = comm_all_reduce_int64(ranks, REDUCE_SUM, values, count);
    for (size_t i = 0; i < count && !st; i++) checksums[i] = (uint32_t)values[i];
    free(values);
    return st;
}

/* Writes the file whose tensors are tensors[begin, end) of the assignment. */
static enum status write_file(const struct safetensors_shards *s, struct file_assignment *a,
                              size_t begin, size_t end, struct manifest *m)
{
    struct file_tensor *tensors = a->tensors + begin;
    const size_t count = end - begin;
    char name[96];
    const struct comm *ranks = s->exchange->ranks;
    size_t size = (size_t)ranks->size, element_bytes = safetensors_dtype_bytes(s->dtype);
    struct output_file f = {.tensors = tensors, .count = count, .out = {.fd = -1}};
    struct safetensors_tensor *described = heap(count * sizeof *described);
    uint64_t bytes;
    enum status st = STATUS_OK;
    format_file_name(s, tensors[0].file, a->num_files, name, sizeof name);
    qsort(tensors, count, sizeof *tensors, safetensors_compare_names);
    for (size_t i = 0; i < count; i++) described[i] = tensors[i].tensor;
    safetensors_build_header(described, count, &f.header, &bytes);
    for (size_t i = 0; i < count; i++) tensors[i].tensor = described[i];
    a->bytes += bytes;
    f.size = f.header.len + bytes;
    f.block_bytes = block_bytes(f.size, element_bytes, (int)size);
    f.blocks = heap(size * sizeof *f.blocks);
    uint64_t num_rounds = (f.size + size * f.block_bytes - 1) / (size * f.block_bytes);
    for (int i = 0; i < 2; i++) f.bytes[i] = heap(f.block_bytes);
    TRY_OUT(open_file(&f, name, m, ranks));
    for (uint64_t round = 0; round <= num_rounds; round++)
        TRY_OUT(comm_agree(ranks, fill_and_write(s, &f, round, num_rounds)));
    TRY_OUT(comm_agree(ranks, manifest_file_sync(&f.out)));
    TRY_OUT(combine_checksums(ranks, f.out.checksums, f.out.num_checksums));
    TRY_OUT(manifest_file_close(&f.out));
out:
    manifest_file_abandon(&f.out);
    for (size_t r = 0; r < size; r++) free(f.blocks[r].spans);
    free(f.blocks), free(f.bytes[0]), free(f.bytes[1]);
    text_release(&f.header);
    free(described);
    return st;
}

static enum status write_index(const struct safetensors_shards *s, const struct file_assignment *a,
                               struct manifest *m)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    char name[96];
    json_begin_object(&w, NULL, JSON_INLINE);
    json_begin_object(&w, "metadata", JSON_INLINE);
    json_write_int(&w, "total_size", (int64_t)a->bytes);
    json_end_object(&w);
    json_begin_object(&w, "weight_map", JSON_INLINE);
    for (size_t i = 0; i < a->count; i++) {
        format_file_name(s, a->tensors[i].file, a->num_files, name, sizeof name);
        json_newline(&w, 2);
        json_write_string(&w, a->tensors[i].tensor.name, name);
    }
    json_newline(&w, 0);
    json_end_object(&w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(&t, "\n");
    snprintf(name, sizeof name, "%s.safetensors.index.json", s->stem);
    enum status st = manifest_write_file(m, name, t.data, t.len);
    text_release(&t);
    return st;
}

enum status safetensors_shards_write(const struct safetensors_shards *s, struct manifest *m)
{
    const struct comm *ranks = s->exchange->ranks;
    struct file_assignment a = {0};
    enum status st = STATUS_OK;
    assign_files(s, &a);
    for (size_t begin = 0, end; begin < a.count; begin = end) {
        for (end = begin + 1; end < a.count && a.tensors[end].file == a.tensors[begin].file;) end++;
        TRY_OUT(write_file(s, &a, begin, end, m));
    }
    bool index = s->index == INDEX_ALWAYS || (s->index == INDEX_IF_MANY && a.num_files > 1);
    if (index && ranks->rank == 0) st = write_index(s, &a, m);
    TRY_OUT(comm_agree(ranks, st));
out:
    for (size_t i = 0; i < a.count; i++) free(a.tensors[i].tensor.name);
    free(a.tensors);
    return st;
}
