/* file.h -- files and folders.
 *
 * Errors   MISSING: no such file or folder.  IO: a system call failed; the message has its error.
 *          DATA: the file is too long, too short or not a regular file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/reader.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* What a path is, links followed.  file_find, file_open and file_list_dir retry EIO, ESTALE and
 * ETIMEDOUT for one second.  IO means unknown: do not treat it as absent. */
enum file_kind { FILE_ABSENT, FILE_REGULAR, FILE_FOLDER, FILE_SPECIAL };
enum status file_find(const char *path, enum file_kind *kind);
/* Whether it is known to exist, where a wrong "no" does no harm. */
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* MISSING: no such folder, or a file; the message says which. */
enum status file_require_folder(const char *path);
bool file_exists_in(const char *folder, const char *name); /* folder/name exists */
enum status file_size(const char *path, uint64_t *size);

/* Opens a regular file for reading, but no FIFO, device or folder, and gets its size.  The caller
 * closes *fd. */
enum status file_open(const char *path, int *fd, uint64_t *size);

/* Reads the whole file into `out`, replacing its contents.  DATA: longer than `limit` bytes. */
enum status file_read(const char *path, uint64_t limit, struct text *out);

/* Replaces `path` atomically: writes a temporary file, fsyncs and renames it, fsyncs the folder.
 * If `path` is a symbolic link, replaces its target, which may be missing, and keeps the link.
 * Writes into a FIFO or device, and into the file of stdout or stderr at its position, instead of
 * replacing it.  IO: no process reads the FIFO. */
enum status file_write(const char *path, const void *bytes, size_t len);
/* Whether file_write writes into what the path names instead of replacing it. */
bool file_is_stream(const char *path);

/* Length of the scheme of a URL, as in s3://bucket/key; 0: a path. */
size_t file_url_scheme(const char *path);
/* Whether the path ends in `suffix` and is longer than it. */
bool file_has_suffix(const char *path, const char *suffix);

/* Like mkdir -p.  CONFIG: a URL, which would otherwise become a folder such as "s3:". */
enum status file_make_dirs(const char *path);
enum status file_rename(const char *from, const char *to);
enum status file_sync_dir(const char *path);    /* makes renames inside it durable */
enum status file_sync_parent(const char *path); /* the same for a rename to that path */
enum status file_remove_tree(const char *path); /* like rm -rf; does not follow links */
/* The same after a failure, which stays this thread's last one; its own failure is ignored. */
void file_discard_tree(const char *path);

/* Exactly `len` bytes at `offset`: retries after short reads, short writes and EINTR.  DATA: the
 * file ends before.  After 1 MiB or more, file_write_at starts to write them to the disk, so that a
 * later fsync is short. */
enum status file_read_at(int fd, const char *path, void *bytes, size_t len, uint64_t offset);
enum status file_write_at(int fd, const char *path, const void *bytes, size_t len, uint64_t offset);

/* Paths in bytewise order. */
struct file_list {
    char **paths; /* owned */
    size_t count;
};
/* The file of exactly this name, or else all that match it as a shell pattern.  MISSING: none.
 * IO: a folder cannot be read. */
enum status file_glob(struct file_list *l, const char *pattern);
/* Names, not paths, in a folder, without "." and "..". */
enum status file_list_dir(struct file_list *l, const char *path);
void file_list_release(struct file_list *l);

/* What follows the last slash: "" of "a/", "/" and "". */
const char *file_name(const char *path);
/* The folder that holds the file, without slashes at its end: "a" of "a/b" and "a/b/", "/" of "/a"
 * and "/", "." of "a", "a/" and "".  On the heap, the caller frees it. */
char *file_parent(const char *path);
/* base + "/" + name, or only name if that is absolute; on the heap, the caller frees it. */
char *file_join(const char *base, const char *name);
