/* file.h -- files and folders, and the one checked reader of bytes that nobody vouches for.
 *
 * Errors   MISSING: it is not there.  IO: the system said no (its words are in the message).
 *          DATA: the bytes end before what they promise. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

bool file_exists(const char *path);
bool file_is_dir(const char *path);
bool file_is_in(const char *folder, const char *name); /* something of that name exists there */
enum status file_size(const char *path, uint64_t *size);

/* Whole file into `out` (cleared first).  DATA: longer than `limit`. */
enum status file_read(const char *path, uint64_t limit, struct text *out);

/* Replaces `path` at once or not at all: temporary file, fsync, rename, fsync of the folder. */
enum status file_write(const char *path, const void *bytes, size_t len);

enum status file_make_dirs(const char *path); /* like mkdir -p */
enum status file_sync_dir(const char *path);  /* makes renames inside it durable */
enum status
file_remove_tree(const char *path); /* like rm -r, never follows links; absent is fine */

/* Exactly `len` bytes at `offset`, through short reads, short writes and EINTR. */
enum status file_read_at(int fd, const char *path, void *bytes, size_t len, uint64_t offset);
enum status file_write_at(int fd, const char *path, const void *bytes, size_t len, uint64_t offset);

/* A read-only mapping of a regular file; an empty file has data NULL and size 0. */
struct file_map {
    const unsigned char *data;
    uint64_t size;
};
enum status file_map_open(struct file_map *m, const char *path);
void file_map_close(struct file_map *m);
/* Its pages within [begin, end), and some before, leave this process's memory; they are read again
 * when touched. */
void file_map_forget(const struct file_map *m, uint64_t begin, uint64_t end);

/* Sorted paths (bytewise). */
struct file_list {
    char **paths; /* owned */
    size_t count;
};
/* The file of that very name, or else all that match it as a shell pattern.  MISSING: none. */
enum status file_glob(struct file_list *l, const char *pattern);
/* Names (not paths) in a folder, without "." and "..". */
enum status file_list_dir(struct file_list *l, const char *path);
void file_list_release(struct file_list *l);

/* base + "/" + name, or just name when it is absolute; heap, the caller frees. */
char *file_join(const char *base, const char *name);

/* Reads little-endian values from a span, refusing to step past its end.  A failed read leaves the
 * reader where it was.  `what` and `name` go into the message. */
struct reader {
    const unsigned char *at, *end;
    const char *name; /* of the file; borrowed */
};
static inline size_t reader_left(const struct reader *r) { return (size_t)(r->end - r->at); }
enum status reader_bytes(struct reader *r, size_t len, const unsigned char **out, const char *what);
enum status reader_u8(struct reader *r, uint8_t *out, const char *what);
enum status reader_u32(struct reader *r, uint32_t *out, const char *what);
enum status reader_u64(struct reader *r, uint64_t *out, const char *what);
/* A count of items of `each` bytes that must all still be there. */
enum status reader_count(struct reader *r, uint64_t count, size_t each, size_t *bytes,
                         const char *what);
