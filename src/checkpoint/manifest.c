// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1 };

/* The CRC that a chunk's checksum starts from. */
static uint32_t chunk_seed(int64_t step, const char *name, uint64_t chunk)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%lld/%s/%llu", (long long)step, name,
                     (unsigned long long)chunk);
    return checksum_crc32c(0, text, (size_t)n);
}

static enum status open_file(struct manifest_file *f, struct manifest *m, const char *name, int how)
{
    *f = (struct manifest_file){.manifest = m, .name = heap_strdup(name)};
    f->path = file_join(m->folder, name);
    f->fd = open(f->path, O_WRONLY | O_CLOEXEC | how, 0666);
    if (f->fd < 0) FAIL(IO, "%s: %s", f->path, strerror(errno));
    f->crc = chunk_seed(m->step, name, 0);
    return STATUS_OK;
}

enum status manifest_file_open(struct manifest_file *f, struct manifest *m, const char *name)
{
    TRY(open_file(f, m, name, O_CREAT | O_EXCL));
    return STATUS_OK;
}

enum status manifest_file_join(struct manifest_file *f, struct manifest *m, const char *name)
{
    TRY(open_file(f, m, name, 0));
    return STATUS_OK;
}

static void finish_chunk(struct manifest_file *f)
{
    f->checksums = heap_grow(f->checksums, f->num_checksums + 1, sizeof *f->checksums);
    f->checksums[f->num_checksums++] = f->crc;
    f->crc = chunk_seed(f->manifest->step, f->name, f->num_checksums);
}

enum status manifest_file_write(struct manifest_file *f, const void *bytes, size_t len)
{
    for (const char *at = bytes; len;) {
        size_t room = MANIFEST_CHUNK - f->size % MANIFEST_CHUNK, n = len < room ? len : room;
        f->crc = checksum_crc32c(f->crc, at, n);
        TRY(file_write_at(f->fd, f->path, at, n, f->size));
        f->size += n, at += n, len -= n;
        if (f->size % MANIFEST_CHUNK == 0) finish_chunk(f);
    }
    return STATUS_OK;
}

void manifest_file_set_size(struct manifest_file *f, uint64_t size)
{
    f->size = size;
    f->num_checksums = (size + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK;
    f->checksums = heap(f->num_checksums * sizeof *f->checksums);
}

void manifest_file_checksum_at(struct manifest_file *f, const void *bytes, size_t len, uint64_t at)
{
    BUG_IF(at % MANIFEST_CHUNK || at > f->size || len > f->size - at ||
           (len % MANIFEST_CHUNK && at + len != f->size));
    for (size_t i = 0; i < len; i += MANIFEST_CHUNK) {
        size_t n = len - i < MANIFEST_CHUNK ? len - i : MANIFEST_CHUNK;
        uint64_t chunk = (at + i) / MANIFEST_CHUNK;
        uint32_t crc = chunk_seed(f->manifest->step, f->name, chunk);
        f->checksums[chunk] = checksum_crc32c(crc, (const char *)bytes + i, n);
    }
}

enum status manifest_file_write_at(struct manifest_file *f, const void *bytes, size_t len,
                                   uint64_t at)
{
    TRY(file_write_at(f->fd, f->path, bytes, len, at));
    return STATUS_OK;
}

void manifest_file_abandon(struct manifest_file *f)
{
    if (f->path && f->fd >= 0) close(f->fd);
    free(f->name);
    free(f->path);
    free(f->checksums);
    *f = (struct manifest_file){.fd = -1};
}

enum status manifest_file_sync(struct manifest_file *f)
{
    int fd = f->fd, bad = fsync(fd) ? errno : 0;
    f->fd = -1;
    if (close(fd) && !bad) bad = errno;
    if (bad) FAIL(IO, "%s: %s", f->path, strerror(bad));
    return STATUS_OK;
}

enum status manifest_file_close(struct manifest_file *f)
{
    struct manifest *m = f->manifest;
    uint64_t whole = (uint64_t)f->num_checksums * MANIFEST_CHUNK;
    enum status st = STATUS_OK;
    if (f->size > whole) finish_chunk(f);
    if (f->fd >= 0) TRY_OUT(manifest_file_sync(f));
    m->files = heap_grow(m->files, m->count + 1, sizeof *m->files);
    m->files[m->count++] =
        (struct manifest_entry){f->name, f->size, f->checksums, f->num_checksums};
    f->name = NULL, f->checksums = NULL; /* the entry's now */
out:
    manifest_file_abandon(f);
    return st;
}

enum status manifest_write_file(struct manifest *m, const char *name, const void *bytes, size_t len)
{
    struct manifest_file f;
    enum status st = manifest_file_open(&f, m, name);
    if (!st) st = manifest_file_write(&f, bytes, len);
    if (!st) st = manifest_file_close(&f);
    manifest_file_abandon(&f);
    return st;
}

static enum status checksum_file(struct manifest_file *f)
{
    uint64_t size;
    void *bytes = heap(MANIFEST_CHUNK);
    enum status st = STATUS_OK;
    int fd = -1;
    TRY_OUT(file_size(f->path, &size));
    fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAIL_OUT(IO, "%s: %s", f->path, strerror(errno));
    for (size_t n; f->size < size; f->size += n) {
        n = size - f->size < MANIFEST_CHUNK ? (size_t)(size - f->size) : MANIFEST_CHUNK;
        TRY_OUT(file_read_at(fd, f->path, bytes, n, f->size));
        f->crc = checksum_crc32c(f->crc, bytes, n);
        if (n == MANIFEST_CHUNK) finish_chunk(f);
    }
out:
    if (fd >= 0) close(fd);
    free(bytes);
    return st;
}

enum status manifest_add_existing(struct manifest *m, const char *name)
{
    struct manifest_file f = {.manifest = m,
                              .name = heap_strdup(name),
                              .path = file_join(m->folder, name),
                              .fd = -1,
                              .crc = chunk_seed(m->step, name, 0)};
    enum status st = checksum_file(&f);
    if (!st) st = manifest_file_close(&f);
    manifest_file_abandon(&f);
    return st;
}

static void write_entry(struct json_writer *w, const struct manifest_entry *e)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "name", e->name);
    json_write_int(w, "size", (int64_t)e->size);
    json_begin_array(w, "crc32c", JSON_INLINE);
    for (size_t i = 0; i < e->num_checksums; i++)
        json_write_format(w, NULL, "\"%08x\"", e->checksums[i]);
    json_end_array(w);
    json_end_object(w);
}

#define OWN_CHECKSUM "manifest_crc32c"

enum status manifest_finish(struct manifest *m)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "format", FORMAT);
    json_write_int(&w, "step", m->step);
    json_write_int(&w, "chunk_bytes", MANIFEST_CHUNK);
    json_begin_array(&w, "files", JSON_INLINE);
    for (size_t i = 0; i < m->count; i++) {
        json_newline(&w, 0);
        write_entry(&w, &m->files[i]);
    }
    json_end_array(&w);
    json_end_checksummed(&w, OWN_CHECKSUM);
    char *path = file_join(m->folder, MANIFEST_NAME);
    enum status st = file_write(path, t.data, t.len);
    free(path);
    text_release(&t);
    return st;
}

uint64_t manifest_bytes(const struct manifest *m)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->count; i++) bytes += m->files[i].size;
    return bytes;
}

void manifest_release(struct manifest *m)
{
    for (size_t i = 0; i < m->count; i++) free(m->files[i].name), free(m->files[i].checksums);
    free(m->files);
    m->files = NULL, m->count = 0;
}

/* Parses manifest.json and verifies its own checksum and its format. */
static enum status parse_manifest(const char *folder, struct json **root)
{
    char *path = file_join(folder, MANIFEST_NAME);
    enum status st = STATUS_OK;
    TRY_OUT(json_read_checksummed(path, MANIFEST_MAX_BYTES, OWN_CHECKSUM, root));
    int64_t format;
    const struct json *v = json_get(*root, "format");
    if (v && !json_as_int(v, FORMAT, FORMAT, &format))
        FAIL_OUT(DATA, "%s: unknown \"format\"; this program reads format %d", path, FORMAT);
out:
    if (st) json_free(*root), *root = NULL;
    free(path);
    return st;
}

/* Whether the name stays in the folder. */
static bool is_plain_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

static enum status check_size(const char *folder, const struct json *file, uint64_t *size)
{
    const char *name;
    int64_t want;
    uint64_t have;
    enum file_kind kind;
    TRY(json_get_string(file, "name", &name));
    if (!is_plain_name(name))
        FAIL(DATA, "%s: the manifest lists \"%s\", which is not a file name", folder, name);
    TRY(json_get_int(file, "size", 0, JSON_MAX_INT, &want));
    char *path = file_join(folder, name);
    enum status st = STATUS_OK;
    TRY_OUT(file_find(path, &kind));
    if (kind == FILE_ABSENT) FAIL_OUT(DATA, "%s is missing", path);
    TRY_OUT(file_size(path, &have));
    if (have != (uint64_t)want)
        FAIL_OUT(DATA, "%s has %llu bytes, expected %lld", path, (unsigned long long)have,
                 (long long)want);
    *size = have;
out:
    free(path);
    return st;
}

static enum status check_header(const char *folder, const struct json *root, int64_t *step)
{
    int64_t chunk;
    TRY(json_get_int(root, "step", 0, JSON_MAX_INT, step));
    TRY(json_get_int(root, "chunk_bytes", MANIFEST_CHUNK, MANIFEST_CHUNK, &chunk));
    if (!json_is_array(json_get(root, "files")))
        FAIL(DATA, "%s: the manifest has no list of files", folder);
    return STATUS_OK;
}

static enum status check_files(const char *folder, const struct json *root, int64_t *step)
{
    uint64_t size;
    TRY(check_header(folder, root, step));
    for (const struct json *f = json_first(json_get(root, "files")); f; f = json_next(f))
        TRY(check_size(folder, f, &size));
    return STATUS_OK;
}

enum status manifest_check(const char *folder, int64_t *step)
{
    struct json *root;
    TRY(parse_manifest(folder, &root));
    enum status st = check_files(folder, root, step);
    json_free(root);
    return st;
}

/* Parses the checksums of a file's chunks. */
static enum status read_checksums(const char *folder, const struct json *file,
                                  struct manifest_entry *e)
{
    const struct json *sums = json_get(file, "crc32c");
    uint64_t num_chunks = (e->size + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK;
    if (json_count(sums) > num_chunks)
        FAIL(DATA, "%s/%s: the manifest has more checksums than the file has chunks", folder,
             e->name);
    e->checksums = heap(json_count(sums) * sizeof *e->checksums);
    for (const struct json *v = json_first(sums); v; v = json_next(v)) {
        char canonical[16];
        uint32_t sum = json_is_string(v) ? (uint32_t)strtoul(json_string(v), NULL, 16) : 0;
        snprintf(canonical, sizeof canonical, "%08x", sum);
        if (!json_is_string(v) || strcmp(canonical, json_string(v))) break;
        e->checksums[e->num_checksums++] = sum;
    }
    if (e->num_checksums < num_chunks)
        FAIL(DATA, "%s/%s: the manifest has no valid checksum of chunk %zu", folder, e->name,
             e->num_checksums);
    return STATUS_OK;
}

static enum status read_entries(struct manifest *m, const struct json *root, const char *name)
{
    const struct json *files = json_get(root, "files");
    TRY(check_header(m->folder, root, &m->step));
    m->files = heap(json_count(files) * sizeof *m->files);
    for (const struct json *f = json_first(files); f; f = json_next(f)) {
        const struct json *own = json_get(f, "name");
        uint64_t size;
        if (name && (!json_is_string(own) || strcmp(json_string(own), name))) continue;
        TRY(check_size(m->folder, f, &size));
        struct manifest_entry *e = &m->files[m->count++];
        *e = (struct manifest_entry){.name = heap_strdup(json_string(own)), .size = size};
        TRY(read_checksums(m->folder, f, e));
    }
    if (name && !m->count) FAIL(DATA, "%s: the manifest does not list %s", m->folder, name);
    return STATUS_OK;
}

enum status manifest_read(struct manifest *m, const char *folder, const char *name)
{
    struct json *root;
    *m = (struct manifest){.folder = folder};
    TRY(parse_manifest(folder, &root));
    enum status st = read_entries(m, root, name);
    json_free(root);
    if (st) manifest_release(m);
    return st;
}

uint32_t manifest_begin_chunk(const struct manifest *m, size_t file, uint64_t chunk)
{
    return chunk_seed(m->step, m->files[file].name, chunk);
}

/* Names the tensors of a safetensors file that have bytes in [begin, end). */
static void name_tensors(const char *path, uint64_t begin, uint64_t end, struct text *out)
{
    struct safetensors s;
    const struct safetensors_tensor *first = NULL, *last = NULL;
    if (!file_has_suffix(path, ".safetensors") || safetensors_open(&s, path)) return;
    for (size_t i = 0; i < s.count; i++) {
        const struct safetensors_tensor *t = &s.tensors[i];
        if (s.data + t->end <= begin || s.data + t->begin >= end) continue;
        if (!first) first = t;
        last = t;
    }
    if (first) text_addf(out, last == first ? ", tensor %s" : ", tensors %s", first->name);
    if (first != last) text_addf(out, " to %s", last->name);
    safetensors_close(&s);
}

enum status manifest_end_chunk(const struct manifest *m, size_t file, uint64_t chunk, uint32_t crc)
{
    const struct manifest_entry *e = &m->files[file];
    uint64_t begin = chunk * MANIFEST_CHUNK, end = begin + MANIFEST_CHUNK;
    struct text tensors = {0};
    if (e->checksums[chunk] == crc) return STATUS_OK;
    if (end > e->size) end = e->size;
    char *path = file_join(m->folder, e->name);
    name_tensors(path, begin, end, &tensors);
    enum status st = FAILURE(DATA, "%s: checksum mismatch in bytes %llu to %llu%s", path,
                             (unsigned long long)begin, (unsigned long long)end,
                             tensors.len ? tensors.data : "");
    text_release(&tensors);
    free(path);
    return st;
}

enum status manifest_for_chunks(size_t count, bool needs_buffer,
                                enum status (*each)(void *context, size_t i, void *buffer),
                                void *context)
{
    struct failure first = {0};
    size_t failed = count;
#pragma omp parallel if (count > 1)
    {
        void *buffer = needs_buffer ? heap(MANIFEST_CHUNK) : NULL;
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < count; i++) {
            struct failure own = {0};
            if (!status_save(&own, each(context, i, buffer))) continue;
#pragma omp critical(manifest_for_chunks)
            if (i < failed) failed = i, first = own;
        }
        free(buffer);
    }
    return status_restore(&first);
}

/* Chunks of a file that is open to be verified. */
struct verified_chunks {
    const struct manifest *manifest;
    size_t file;
    const char *path;
    int fd;
    const uint64_t *chunks;
};

static size_t chunk_bytes(const struct verified_chunks *v, uint64_t chunk)
{
    uint64_t left = v->manifest->files[v->file].size - chunk * MANIFEST_CHUNK;
    return left < MANIFEST_CHUNK ? (size_t)left : MANIFEST_CHUNK;
}

/* Reads from the file: an I/O error is then a status, not SIGBUS. */
static enum status verify_chunk(void *context, size_t i, void *buffer)
{
    const struct verified_chunks *v = context;
    uint64_t chunk = v->chunks[i];
    size_t len = chunk_bytes(v, chunk);
    TRY(file_read_at(v->fd, v->path, buffer, len, chunk * MANIFEST_CHUNK));
    uint32_t crc = manifest_begin_chunk(v->manifest, v->file, chunk);
    return manifest_end_chunk(v->manifest, v->file, chunk, checksum_crc32c(crc, buffer, len));
}

static enum status verify_chunks(struct verified_chunks v, size_t count)
{
    enum { ROUND = 64 }; /* chunks between reports of progress */
    enum status st = STATUS_OK;
    for (size_t n; count && !st; v.chunks += n, count -= n) {
        double bytes = 0;
        n = count < ROUND ? count : ROUND;
        st = manifest_for_chunks(n, true, verify_chunk, &v);
        for (size_t i = 0; i < n; i++) bytes += (double)chunk_bytes(&v, v.chunks[i]);
        progress_add(bytes);
    }
    return st;
}

enum status manifest_verify_chunks(const struct manifest *m, size_t file, const uint64_t *chunks,
                                   size_t count)
{
    struct verified_chunks v = {.manifest = m, .file = file, .fd = -1, .chunks = chunks};
    char *path = file_join(m->folder, m->files[file].name);
    enum status st = STATUS_OK;
    uint64_t size;
    v.path = path;
    if (!count) goto out;
    TRY_OUT(file_open(path, &v.fd, &size));
    TRY_OUT(verify_chunks(v, count));
out:
    if (v.fd >= 0) close(v.fd);
    free(path);
    return st;
}

static enum status verify_file(const struct manifest *m, size_t file)
{
    size_t count = m->files[file].num_checksums;
    uint64_t *chunks = heap(count * sizeof *chunks);
    for (size_t i = 0; i < count; i++) chunks[i] = i;
    enum status st = manifest_verify_chunks(m, file, chunks, count);
    free(chunks);
    return st;
}

enum status manifest_verify(const char *folder, const char *name)
{
    struct manifest m;
    enum status st = STATUS_OK;
    TRY(manifest_read(&m, folder, name));
    for (size_t i = 0; i < m.count && !st; i++) st = verify_file(&m, i);
    manifest_release(&m);
    return st;
}

enum status manifest_list(const char *folder, struct file_list *names)
{
    struct json *root;
    *names = (struct file_list){0};
    TRY(parse_manifest(folder, &root));
    size_t most = json_count(json_get(root, "files"));
    names->paths = heap(most * sizeof *names->paths);
    for (const struct json *f = json_first(json_get(root, "files")); f; f = json_next(f)) {
        const struct json *name = json_get(f, "name");
        if (!json_is_string(name) || !is_plain_name(json_string(name))) continue;
        names->paths[names->count++] = heap_strdup(json_string(name));
    }
    json_free(root);
    return STATUS_OK;
}
