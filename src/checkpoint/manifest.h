/* manifest.h -- files that are checksummed as they are written, and the manifest that verifies
 * them.
 *
 * manifest.json lists every file of a checkpoint with its size and a CRC-32C per MiB, so corrupt
 * data is detected before it is loaded.  A chunk's checksum also covers the step, the file's name
 * and the chunk's number, which detects chunks, files and manifests that were swapped.  The last
 * member is the checksum of the manifest itself. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { MANIFEST_CHUNK = 1 << 20, MANIFEST_MAX_BYTES = 256 << 20 /* of a manifest */ };
#define MANIFEST_NAME "manifest.json"

/* A finished file. */
struct manifest_entry {
    char *name; /* owned */
    uint64_t size;
    uint32_t *checksums; /* CRC-32C of the chunks; owned */
    size_t num_checksums;
};

/* A manifest that is being written, or that was read. */
struct manifest {
    const char *folder; /* borrowed */
    int64_t step;
    struct manifest_entry *files; /* owned */
    size_t count;
};

/* A file being written: sequentially, or by several ranks in whole chunks. */
struct manifest_file {
    struct manifest *manifest;
    char *name, *path;
    int fd;
    uint64_t size;
    uint32_t crc;        /* of the current chunk */
    uint32_t *checksums; /* of the chunks; owned */
    size_t num_checksums;
};

enum status manifest_file_open(struct manifest_file *f, struct manifest *m, const char *name);
/* Opens a file that another rank has created with manifest_file_open. */
enum status manifest_file_join(struct manifest_file *f, struct manifest *m, const char *name);
/* Updates the checksum from the caller's bytes before writing them. */
enum status manifest_file_write(struct manifest_file *f, const void *bytes, size_t len);
/* Sets the size of a file that is written with manifest_file_write_at; checksums are 0 until
 * then. */
void manifest_file_set_size(struct manifest_file *f, uint64_t size);
/* Set the checksums of whole chunks, and write such chunks; the file's last one may be shorter.
 * Threads may call both at once, for different chunks. */
void manifest_file_checksum_at(struct manifest_file *f, const void *bytes, size_t len, uint64_t at);
enum status manifest_file_write_at(struct manifest_file *f, const void *bytes, size_t len,
                                   uint64_t at);
/* Calls fsync and closes; no more writes. */
enum status manifest_file_sync(struct manifest_file *f);
/* Syncs, unless done already, and adds the file to the manifest. */
enum status manifest_file_close(struct manifest_file *f);
void manifest_file_abandon(struct manifest_file *f); /* allowed after manifest_file_close, too */
/* Writes a small file at once. */
enum status manifest_write_file(struct manifest *m, const char *name, const void *bytes,
                                size_t len);

/* Reads a file that is durable in the folder already, and adds it to the manifest. */
enum status manifest_add_existing(struct manifest *m, const char *name);

/* Writes manifest.json with fsync.  Call it last. */
enum status manifest_finish(struct manifest *m);
/* Bytes of all its files, as known on this rank. */
uint64_t manifest_bytes(const struct manifest *m);
void manifest_release(struct manifest *m);

/* Checks that the folder's manifest is valid and all files have their sizes; sets *step.  MISSING:
 * no manifest.  DATA: the message says what is wrong. */
enum status manifest_check(const char *folder, int64_t *step);
/* Also verifies the checksum of every byte; the message has file, offset and tensors.  `name` NULL:
 * all files. */
enum status manifest_verify(const char *folder, const char *name);

/* Reads a folder's manifest, which must be valid, and checks the sizes of its files.  `name` NULL:
 * all of them.  Errors: those of manifest_check.  DATA: it does not list `name`. */
enum status manifest_read(struct manifest *m, const char *folder, const char *name);
/* Where the checksum of a chunk begins, and whether it is right in the end.  DATA: it is not; the
 * message has file, offset and tensors. */
uint32_t manifest_begin_chunk(const struct manifest *m, size_t file, uint64_t chunk);
enum status manifest_end_chunk(const struct manifest *m, size_t file, uint64_t chunk, uint32_t crc);
/* Calls `each` for every i < count, with the threads of OpenMP; each thread has a buffer of
 * MANIFEST_CHUNK bytes, or NULL.  Returns the failure of the smallest i. */
enum status manifest_for_chunks(size_t count, bool needs_buffer,
                                enum status (*each)(void *context, size_t i, void *buffer),
                                void *context);
/* Reads chunks of a file and verifies them, with the threads of OpenMP. */
enum status manifest_verify_chunks(const struct manifest *m, size_t file, const uint64_t *chunks,
                                   size_t count);

/* Names of the listed files.  Other files in the folder are not part of the checkpoint. */
enum status manifest_list(const char *folder, struct file_list *names);
