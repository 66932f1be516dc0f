// SPDX-License-Identifier: Apache-2.0
#include "formats/megatron_sum.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_CHECKSUM "sum_crc32c"
enum { FORMAT = 1, MAX_BYTES = 256 << 20 };

void megatron_sum_add(struct megatron_sum *s, const void *bytes, size_t len)
{
    for (const char *at = bytes; len;) {
        size_t used = s->bytes % MEGATRON_SUM_CHUNK, room = MEGATRON_SUM_CHUNK - used;
        size_t n = len < room ? len : room;
        if (!used) {
            s->crcs = heap_grow(s->crcs, s->count + 1, sizeof *s->crcs);
            s->crcs[s->count++] = 0;
        }
        s->crcs[s->count - 1] = checksum_crc32c(s->crcs[s->count - 1], at, n);
        s->bytes += n, at += n, len -= n;
    }
}

void megatron_sum_release(struct megatron_sum *s)
{
    free(s->crcs);
    *s = (struct megatron_sum){0};
}

uint32_t megatron_sum_digest(const struct megatron_sum *s)
{
    return checksum_crc32c(0, s->crcs, s->count * sizeof *s->crcs);
}

static char *path_of(const char *prefix, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s.%s", prefix, suffix);
    return t.data;
}

static void write_sum(const struct megatron_sum *s, const char *key, struct json_writer *w)
{
    json_newline(w, 0);
    json_begin_object(w, key, JSON_INLINE);
    json_write_int(w, "size", (int64_t)s->bytes);
    json_begin_array(w, "crc32c", JSON_INLINE);
    for (size_t i = 0; i < s->count; i++) json_write_format(w, NULL, "\"%08x\"", s->crcs[i]);
    json_end_array(w);
    json_end_object(w);
}

enum status megatron_sum_write(const char *prefix, const struct megatron_sum *bin,
                               const struct megatron_sum *idx)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "format", FORMAT);
    json_write_int(&w, "chunk_bytes", MEGATRON_SUM_CHUNK);
    write_sum(bin, "bin", &w);
    write_sum(idx, "idx", &w);
    json_end_checksummed(&w, OWN_CHECKSUM);
    char *path = path_of(prefix, "sum");
    enum status st = file_write(path, t.data, t.len);
    free(path);
    text_release(&t);
    return st;
}

static enum status read_sum(const struct json *root, const char *key, const char *path,
                            struct megatron_sum *s)
{
    const struct json *file = json_get(root, key), *list = json_get(file, "crc32c");
    int64_t size;
    TRY_PREFIX(json_get_int(file, "size", 0, JSON_MAX_INT, &size), "%s: \"%s\"", path, key);
    s->bytes = (uint64_t)size;
    uint64_t chunks = (s->bytes + MEGATRON_SUM_CHUNK - 1) / MEGATRON_SUM_CHUNK;
    if (!json_is_array(list) || json_count(list) != chunks)
        FAIL(DATA, "%s: \"%s\": expected %llu checksums", path, key, (unsigned long long)chunks);
    s->crcs = heap((chunks + 1) * sizeof *s->crcs);
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        char *end = NULL;
        const char *hex = json_is_string(v) ? json_string(v) : "";
        s->crcs[s->count++] = (uint32_t)strtoul(hex, &end, 16);
        if (strlen(hex) != 8 || *end) FAIL(DATA, "%s: \"%s\": malformed checksum", path, key);
    }
    return STATUS_OK;
}

static enum status read_sums(const char *path, struct megatron_sum *bin, struct megatron_sum *idx)
{
    struct json *root = NULL;
    int64_t expected;
    enum status st = STATUS_OK;
    TRY_OUT(json_read_checksummed(path, MAX_BYTES, OWN_CHECKSUM, &root));
    TRY_PREFIX_OUT(json_get_int(root, "format", FORMAT, FORMAT, &expected), "%s", path);
    TRY_PREFIX_OUT(
        json_get_int(root, "chunk_bytes", MEGATRON_SUM_CHUNK, MEGATRON_SUM_CHUNK, &expected), "%s",
        path);
    TRY_OUT(read_sum(root, "bin", path, bin));
    TRY_OUT(read_sum(root, "idx", path, idx));
out:
    json_free(root);
    if (st == STATUS_DATA)
        status_prefix(st,
                      "not a checksum file of `llamero prepare`, or damaged; rename or delete it");
    return st;
}

/* Begins a line. */
static void add_file(struct text *errors, const char *prefix, const char *suffix)
{
    if (errors->len) text_adds(errors, "\n");
    text_add_escaped(errors, prefix);
    text_addf(errors, ".%s", suffix);
}

/* Appends a line for each run of chunks that differ; compares sizes first. */
static void compare(const char *prefix, const char *suffix, const struct megatron_sum *have,
                    const struct megatron_sum *want, struct text *errors)
{
    if (have->bytes != want->bytes) {
        add_file(errors, prefix, suffix);
        text_addf(errors, " has %llu bytes, expected %llu", (unsigned long long)have->bytes,
                  (unsigned long long)want->bytes);
        return;
    }
    for (size_t i = 0, end; i < want->count; i = end) {
        for (end = i; end < want->count && have->crcs[end] != want->crcs[end];) end++;
        uint64_t from = (uint64_t)i * MEGATRON_SUM_CHUNK, to = (uint64_t)end * MEGATRON_SUM_CHUNK;
        if (end++ == i) continue;
        add_file(errors, prefix, suffix);
        text_addf(errors, ": checksum mismatch in bytes %llu to %llu", (unsigned long long)from,
                  (unsigned long long)(to < have->bytes ? to : have->bytes));
    }
}

enum status megatron_sum_check(const char *prefix, uint64_t bin_bytes, const void *idx,
                               size_t idx_bytes)
{
    struct megatron_sum bin = {0}, want = {0}, have = {0};
    struct text errors = {0}, message = {0};
    char *path = path_of(prefix, "sum");
    enum file_kind kind;
    enum status st = STATUS_OK;
    TRY_OUT(file_find(path, &kind));
    if (kind == FILE_ABSENT) goto out;
    TRY_OUT(read_sums(path, &bin, &want));
    if (bin.bytes != bin_bytes)
        compare(prefix, "bin", &(struct megatron_sum){.bytes = bin_bytes}, &bin, &errors);
    megatron_sum_add(&have, idx, idx_bytes);
    compare(prefix, "idx", &have, &want, &errors);
    if (!errors.len) goto out;
    add_file(&message, prefix, "sum");
    text_addf(&message,
              " does not match: %s; the files are damaged, or another program has "
              "replaced them; in that case delete ",
              errors.data);
    text_add_escaped(&message, path);
    FAIL_OUT(DATA, "%s", message.data);
out:
    megatron_sum_release(&bin), megatron_sum_release(&want), megatron_sum_release(&have);
    text_release(&errors), text_release(&message);
    free(path);
    return st;
}

/* Reads rather than maps the file: an I/O error is then a status, not SIGBUS. */
static enum status read_all(const char *path, struct megatron_sum *s)
{
    enum { READ_BYTES = 1 << 20 };
    uint64_t size;
    enum status st = STATUS_OK;
    int fd;
    TRY(file_open(path, &fd, &size));
    void *bytes = heap(READ_BYTES);
    while (s->bytes < size) {
        size_t n = size - s->bytes < READ_BYTES ? (size_t)(size - s->bytes) : READ_BYTES;
        TRY_OUT(file_read_at(fd, path, bytes, n, s->bytes));
        megatron_sum_add(s, bytes, n);
    }
out:
    close(fd);
    free(bytes);
    return st;
}

enum status megatron_sum_verify(const char *prefix, struct text *errors, uint64_t *bytes)
{
    static const char *const suffixes[] = {"bin", "idx"};
    struct megatron_sum want[2] = {{0}}, have[2] = {{0}};
    char *path = path_of(prefix, "sum");
    enum status st = STATUS_OK;
    enum file_kind kind;
    *bytes = 0;
    TRY_OUT(file_find(path, &kind));
    if (kind == FILE_ABSENT)
        FAIL_OUT(MISSING, "%s: no such file: only `llamero prepare` writes checksums", path);
    if (read_sums(path, &want[0], &want[1])) {
        text_addf(errors, "%s%s", errors->len ? "\n" : "", status_message());
        goto out;
    }
    for (int i = 0; i < 2; i++) {
        char *file = path_of(prefix, suffixes[i]);
        if (read_all(file, &have[i]))
            text_addf(errors, "%s%s", errors->len ? "\n" : "", status_message());
        else
            compare(prefix, suffixes[i], &have[i], &want[i], errors);
        *bytes += have[i].bytes;
        free(file);
    }
out:
    for (int i = 0; i < 2; i++) megatron_sum_release(&want[i]), megatron_sum_release(&have[i]);
    free(path);
    return st;
}

bool megatron_sum_exists(const char *prefix, size_t *len)
{
    static const char *const suffixes[] = {".bin", ".idx", ".sum"};
    *len = strlen(prefix);
    for (int i = 0; i < 3; i++)
        if (file_has_suffix(prefix, suffixes[i])) *len = strlen(prefix) - 4;
    char *stem = heap_string(prefix, *len), *path = path_of(stem, "sum");
    bool exists = file_exists(path);
    free(stem), free(path);
    return exists;
}
