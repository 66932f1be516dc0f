/* manifest.h -- files that are sealed while they are written, and the list that proves them whole.
 *
 * manifest.json names every file of a checkpoint with its size and the CRC-32C of each MiB; a
 * chunk's sum begins with the step, the file's name and the chunk's number, so a chunk, file or
 * manifest of another place or step does not pass.  Its last member is the sum of the bytes before
 * it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { MANIFEST_CHUNK = 1 << 20 };
#define MANIFEST_NAME "manifest.json"

/* A manifest in the making: its folder, and what was written so far. */
struct manifest {
    const char *folder; /* borrowed */
    int64_t step;
    struct text files; /* JSON of the finished files */
};

/* A file being written: from its first byte to its last, or, where several ranks write parts of
 * it, in whole chunks. */
struct manifest_file {
    struct manifest *manifest;
    char *name, *path;
    int fd;
    uint64_t size;
    uint32_t crc;        /* of the chunk under way */
    uint32_t *checksums; /* of the chunks; owned */
    size_t num_checksums;
};

enum status manifest_file_open(struct manifest_file *f, struct manifest *m, const char *name);
/* One that another rank has opened with the function above. */
enum status manifest_file_join(struct manifest_file *f, struct manifest *m, const char *name);
/* The bytes are summed as they are handed over, before they are written. */
enum status manifest_file_write(struct manifest_file *f, const void *bytes, size_t len);
/* The file will be written with manifest_file_write_at and have this size; its sums are 0 until
 * then. */
void manifest_file_set_size(struct manifest_file *f, uint64_t size);
/* Whole chunks, the last of which may be the file's. */
enum status manifest_file_write_at(struct manifest_file *f, const void *bytes, size_t len,
                                   uint64_t at);
/* fsync, and close: nothing more is written. */
enum status manifest_file_sync(struct manifest_file *f);
/* The same, if it was not done, and an entry in the manifest. */
enum status manifest_file_close(struct manifest_file *f);
void manifest_file_abandon(struct manifest_file *f); /* fine after manifest_file_close, too */
/* A small file at once. */
enum status manifest_write_file(struct manifest *m, const char *name, const void *bytes,
                                size_t len);

/* Writes manifest.json, durably.  Call it last. */
enum status manifest_finish(struct manifest *m);
void manifest_release(struct manifest *m);

/* The manifest of a folder is there, sound, and the files have their sizes; *step is its step.
 * MISSING: there is none.  DATA: what is wrong. */
enum status manifest_check(const char *folder, int64_t *step);
/* That, and every byte has its checksum; the message names file, chunk and offset.  `name` limits
 * it to one file (NULL: all). */
enum status manifest_verify(const char *folder, const char *name);
/* That, of every parts-th chunk, from chunk `part` on: ranks that share the reading. */
enum status manifest_verify_part(const char *folder, int part, int parts);
/* Names of the files it lists.  What else lies in the folder is not part of the checkpoint. */
enum status manifest_list(const char *folder, struct file_list *names);
