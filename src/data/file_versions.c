// SPDX-License-Identifier: Apache-2.0
#include "data/file_versions.h"

#include "base/checksum.h"
#include "base/file_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NANOSECONDS = 1000000000 };

void file_versions_add(struct file_versions *v, const char *path)
{
    v->files = heap_grow(v->files, v->count + 1, sizeof *v->files);
    v->files[v->count++] = (struct file_version){.path = heap_strdup(path)};
}

enum status file_versions_sample(struct file_version *f)
{
    int64_t mtime_ns;
    if (f->is_sampled) return STATUS_OK;
    TRY(file_sample_hash(f->path, &f->hash, &f->bytes, &mtime_ns));
    f->modified_s = mtime_ns / NANOSECONDS;
    f->is_sampled = true;
    return STATUS_OK;
}

void file_versions_release(struct file_versions *v)
{
    for (size_t i = 0; i < v->count; i++) free(v->files[i].path);
    free(v->files);
    *v = (struct file_versions){0};
}

void file_versions_write(const struct file_versions *v, const char *key, struct json_writer *w)
{
    json_begin_array(w, key, JSON_INLINE);
    for (size_t i = 0; i < v->count; i++) {
        const struct file_version *f = &v->files[i];
        char hash[17];
        BUG_IF(!f->is_sampled);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->hash);
        json_newline(w, 0);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "path", f->path);
        json_write_int(w, "bytes", f->bytes);
        json_write_int(w, "modified", f->modified_s);
        json_write_string(w, "hash", hash);
        json_end_object(w);
    }
    json_end_array(w);
}

enum status file_versions_read(struct file_versions *v, const struct json *array)
{
    if (!json_is_array(array)) FAIL(DATA, "expected a list of files");
    for (const struct json *one = json_first(array); one; one = json_next(one)) {
        const char *path, *hash;
        char *end;
        int64_t bytes, modified;
        TRY(json_get_string(one, "path", &path));
        TRY(json_get_int(one, "bytes", 0, JSON_MAX_INT, &bytes));
        TRY(json_get_int(one, "modified", -JSON_MAX_INT, JSON_MAX_INT, &modified));
        TRY(json_get_string(one, "hash", &hash));
        file_versions_add(v, path);
        struct file_version *f = &v->files[v->count - 1];
        f->is_sampled = true;
        f->bytes = bytes, f->modified_s = modified;
        f->hash = strtoull(hash, &end, 16);
        if (strlen(hash) != 16 || *end)
            FAIL(DATA, "%s: hash \"%s\": expected 16 hexadecimal digits", path, hash);
    }
    return STATUS_OK;
}

uint32_t file_versions_sum(const struct file_versions *v, uint32_t crc)
{
    for (size_t i = 0; i < v->count; i++) {
        const uint64_t content[] = {(uint64_t)v->files[i].bytes, v->files[i].hash};
        crc = checksum_crc32c(crc, content, sizeof content);
    }
    return crc;
}

bool file_versions_are_equal(const struct file_version *a, const struct file_version *b)
{
    return a->bytes == b->bytes && a->hash == b->hash;
}

/* Whether the content of `f` is among the files from `first` on. */
static bool is_among(const struct file_versions *v, size_t first, const struct file_version *f)
{
    for (size_t i = first; i < v->count; i++)
        if (file_versions_are_equal(&v->files[i], f)) return true;
    return false;
}

struct file_change *file_versions_compare(const struct file_versions *before,
                                          const struct file_versions *now, size_t *count)
{
    struct file_change *changes = heap((before->count + now->count) * sizeof *changes);
    size_t i = 0, j = 0;
    *count = 0;
    while (i < before->count || j < now->count) {
        const struct file_version *a = i < before->count ? &before->files[i] : NULL;
        const struct file_version *b = j < now->count ? &now->files[j] : NULL;
        if (a && b && file_versions_are_equal(a, b)) {
            i++, j++;
            continue;
        }
        /* the other one is new or gone if this one follows later */
        if (a && b && is_among(now, j, a))
            a = NULL;
        else if (a && b && is_among(before, i, b))
            b = NULL;
        changes[(*count)++] = (struct file_change){a, b};
        i += a != NULL, j += b != NULL;
    }
    return changes;
}

const char *file_versions_path_of(const struct file_change *c)
{
    return c->now ? c->now->path : c->before->path;
}

void file_versions_describe(const struct file_change *c, struct text *out)
{
    const struct file_version *a = c->before, *b = c->now;
    text_addf(out, "%s: ", file_versions_path_of(c));
    if (!a || !b) {
        text_adds(out, a ? "the file was removed" : "the file is new");
        return;
    }
    if (strcmp(a->path, b->path) != 0)
        text_addf(out, "differs from %s, which it replaces: ", a->path);
    if (a->bytes != b->bytes) {
        text_addf(out, "the file has %lld bytes, it had %lld", (long long)b->bytes,
                  (long long)a->bytes);
        return;
    }
    char when[32] = "";
    struct tm local;
    time_t modified = (time_t)b->modified_s;
    if (localtime_r(&modified, &local)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    text_addf(out, "the content of the file has changed; it still has %lld bytes, modified %s",
              (long long)b->bytes, when);
}
