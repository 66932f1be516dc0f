// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_reader.h"

#include "base/checksum.h"
#include "base/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_verified(const struct chunk_reader *r, uint64_t i)
{
    return r->verified[i / 8] >> i % 8 & 1;
}

static void set_verified(struct chunk_reader *r, uint64_t i)
{
    r->verified[i / 8] |= (uint8_t)(1 << i % 8);
}

/* Whether a chunk is still to be verified: of the files in use; or, before any is, of files without
 * tensors and the first of the others, which has the header of all but huge models. */
static bool is_due(const struct chunk_reader *r, size_t file, uint64_t chunk, bool is_first)
{
    bool has_tensors = file_has_suffix(r->manifest.files[file].name, ".safetensors");
    return (is_first ? !has_tensors || chunk == 0 : r->is_used[file]) &&
           !is_verified(r, r->first[file] + chunk);
}

/* The ranks share the chunks that are due, which all of them know. */
static enum status verify_due(struct chunk_reader *r, const struct comm *ranks, bool is_first)
{
    enum status st = STATUS_OK;
    uint64_t num_due = 0, size = (uint64_t)ranks->size;
    for (size_t f = 0; f < r->manifest.count && !st; f++) {
        uint64_t n = r->manifest.files[f].num_checksums, *mine = heap(n * sizeof *mine);
        size_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            if (!is_due(r, f, i, is_first)) continue;
            if (num_due++ % size == (uint64_t)ranks->rank) mine[count++] = i;
            set_verified(r, r->first[f] + i);
        }
        st = manifest_verify_chunks(&r->manifest, f, mine, count);
        free(mine);
    }
    return comm_agree(ranks, st);
}

static enum status read_manifest(struct chunk_reader *r, const char *folder)
{
    TRY(manifest_read(&r->manifest, folder, NULL));
    r->has_checksums = true;
    r->is_used = heap(r->manifest.count * sizeof *r->is_used);
    r->first = heap(r->manifest.count * sizeof *r->first);
    for (size_t i = 0; i < r->manifest.count; i++) {
        r->first[i] = r->num_chunks;
        r->num_chunks += r->manifest.files[i].num_checksums;
    }
    r->verified = heap(r->num_chunks / 8 + 1);
    return STATUS_OK;
}

enum status chunk_reader_open(struct chunk_reader *r, const char *folder, bool native,
                              const struct comm *ranks)
{
    *r = (struct chunk_reader){.manifest = {.folder = folder}, .fd = -1};
    if (!native) return STATUS_OK;
    TRY(comm_agree(ranks, read_manifest(r, folder)));
    TRY(verify_due(r, ranks, true));
    return STATUS_OK;
}

static void close_file(struct chunk_reader *r)
{
    if (r->fd >= 0) close(r->fd);
    free(r->path);
    r->path = NULL, r->fd = -1, r->has_crc = false;
}

void chunk_reader_close(struct chunk_reader *r)
{
    close_file(r);
    manifest_release(&r->manifest);
    free(r->is_used), free(r->first), free(r->verified);
}

bool chunk_reader_use(struct chunk_reader *r, const char *path, uint64_t bytes, size_t *file)
{
    struct manifest *m = &r->manifest;
    const char *name = file_name(path);
    for (*file = 0; *file < m->count && strcmp(m->files[*file].name, name); ++*file) {
    }
    if (*file < m->count && r->has_checksums) r->is_used[*file] = true;
    if (*file < m->count || r->has_checksums) return *file < m->count;
    m->files = heap_grow(m->files, m->count + 1, sizeof *m->files);
    m->files[m->count++] = (struct manifest_entry){.name = heap_strdup(name), .size = bytes};
    return true;
}

bool chunk_reader_find(struct chunk_reader *r, const struct tensor_reader *t, size_t *file,
                       uint64_t *at)
{
    if (!t->file || t->scale.tensor) return false;
    enum safetensors_dtype dtype = t->tensor->dtype;
    *at = t->file->data + t->tensor->begin;
    return (dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_BF16 || dtype == SAFETENSORS_F16 ||
            dtype == SAFETENSORS_F64) &&
           *at % safetensors_dtype_bytes(dtype) == 0 &&
           chunk_reader_use(r, t->file->path, t->file->map.size, file);
}

void chunk_reader_use_all(struct chunk_reader *r)
{
    for (size_t i = 0; i < r->manifest.count && r->has_checksums; i++) r->is_used[i] = true;
}

static enum status open_file(struct chunk_reader *r, size_t file)
{
    uint64_t size;
    if (r->fd >= 0 && r->file == file) return STATUS_OK;
    close_file(r);
    r->file = file;
    r->path = file_join(r->manifest.folder, r->manifest.files[file].name);
    TRY(file_open(r->path, &r->fd, &size));
    return STATUS_OK;
}

/* A read: parts of consecutive chunks. */
struct chunk_parts {
    struct chunk_reader *r;
    const struct chunk_target *target;
    uint64_t begin, end; /* bytes of the file */
    uint64_t first;      /* chunk */
    size_t count;        /* of chunks */
    uint32_t crc;        /* of the last chunk, up to `end` */
};

/* Whether the checksum of part i's chunk is known up to the end of the part. */
static bool knows_checksum(const struct chunk_parts *p, size_t i)
{
    bool begins = i || p->begin % MANIFEST_CHUNK == 0;
    return p->r->has_checksums && (begins || (p->r->has_crc && p->r->at == p->begin));
}

static bool ends_chunk(const struct chunk_parts *p, size_t i)
{
    return i + 1 < p->count || p->end % MANIFEST_CHUNK == 0 ||
           p->end == p->r->manifest.files[p->r->file].size;
}

static enum status read_part(void *context, size_t i, void *buffer)
{
    struct chunk_parts *p = context;
    struct chunk_reader *r = p->r;
    uint64_t chunk = p->first + i, at = chunk * MANIFEST_CHUNK, end = at + MANIFEST_CHUNK;
    if (at < p->begin) at = p->begin;
    if (end > p->end) end = p->end;
    void *bytes = p->target->to ? (char *)p->target->to + (at - p->begin) : buffer;
    size_t len = (size_t)(end - at);
    TRY(file_read_at(r->fd, r->path, bytes, len, at));
    if (knows_checksum(p, i)) {
        uint32_t crc =
            at % MANIFEST_CHUNK ? r->crc : manifest_begin_chunk(&r->manifest, r->file, chunk);
        crc = checksum_crc32c(crc, bytes, len);
        if (ends_chunk(p, i)) TRY(manifest_end_chunk(&r->manifest, r->file, chunk, crc));
        if (i + 1 == p->count) p->crc = crc;
    }
    p->target->use(p->target->context, at - p->begin, bytes, len);
    return STATUS_OK;
}

enum status chunk_reader_read(struct chunk_reader *r, size_t file, uint64_t at, size_t len,
                              const struct chunk_target *target)
{
    BUG_IF(len > CHUNK_READER_MOST || file >= r->manifest.count);
    if (!len) return STATUS_OK;
    TRY(open_file(r, file));
    if (at + len > r->manifest.files[file].size)
        FAIL(DATA, "%s: the file was replaced while it was being loaded", r->path);
    struct chunk_parts p = {.r = r, .target = target, .begin = at, .end = at + len};
    p.first = at / MANIFEST_CHUNK;
    p.count = (size_t)((p.end - 1) / MANIFEST_CHUNK - p.first) + 1;
    TRY(manifest_for_chunks(p.count, !target->to, read_part, &p));
    for (size_t i = 0; i < p.count; i++)
        if (knows_checksum(&p, i) && ends_chunk(&p, i))
            set_verified(r, r->first[file] + p.first + i);
    r->has_crc = knows_checksum(&p, p.count - 1) && !ends_chunk(&p, p.count - 1);
    r->at = p.end, r->crc = p.crc;
    progress_add((double)len);
    return STATUS_OK;
}

/* Each rank learns what the others have verified, a few MiB of chunks' bits at a time. */
static enum status gather_verified(struct chunk_reader *r, const struct comm *ranks)
{
    enum { SLICE = 4096 };
    size_t size = (size_t)ranks->size, bytes = r->num_chunks / 8 + 1;
    uint8_t *all = heap(size * SLICE);
    enum status st = STATUS_OK;
    for (size_t at = 0, n; at < bytes && size > 1; at += n) {
        n = bytes - at < SLICE ? bytes - at : SLICE;
        memcpy(all + (size_t)ranks->rank * n, r->verified + at, n);
        TRY_OUT(comm_all_gather_bytes(ranks, all, n));
        for (size_t i = 0; i < size * n; i++) r->verified[at + i % n] |= all[i];
    }
out:
    free(all);
    return st;
}

enum status chunk_reader_finish(struct chunk_reader *r, const struct comm *ranks)
{
    if (!r->has_checksums) return STATUS_OK;
    TRY(gather_verified(r, ranks));
    TRY(verify_due(r, ranks, false));
    return STATUS_OK;
}
