/* file_versions.h -- whether the files that a saved position belongs to still have the same
 * content.
 *
 * A version of a file is its size and the hash of a sample of its content (base/file_sample.h).
 * Path and time of modification only serve messages: a copy elsewhere, or under another name, is
 * the same.  The order of the files counts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_version {
    char *path;      /* owned */
    bool is_sampled; /* the rest is set */
    int64_t bytes, modified_s;
    uint64_t hash;
};

struct file_versions {
    struct file_version *files; /* owned */
    size_t count;
};

/* Appends a file, which is not sampled yet. */
void file_versions_add(struct file_versions *v, const char *path);
/* Samples the version that the file has now, unless it is sampled already.  MISSING, IO, DATA: as
 * file_sample_hash. */
enum status file_versions_sample(struct file_version *f);
void file_versions_release(struct file_versions *v);

/* Writes them, which must be sampled, as a JSON array. */
void file_versions_write(const struct file_versions *v, const char *key, struct json_writer *w);
/* Appends those of the array.  DATA: file_versions_write cannot have written it. */
enum status file_versions_read(struct file_versions *v, const struct json *array);

/* Continues a CRC-32C with the content of all files, which must be sampled. */
uint32_t file_versions_sum(const struct file_versions *v, uint32_t crc);

bool file_versions_are_equal(const struct file_version *a, const struct file_version *b);

/* A file that was added (`before` is NULL), removed (`now` is NULL) or changed. */
struct file_change {
    const struct file_version *before, *now; /* borrowed */
};
/* Returns the changes, on the heap, and their number. */
struct file_change *file_versions_compare(const struct file_versions *before,
                                          const struct file_versions *now, size_t *count);
/* The file that a change is about. */
const char *file_versions_path_of(const struct file_change *c);
/* Appends "PATH: what has changed". */
void file_versions_describe(const struct file_change *c, struct text *out);
