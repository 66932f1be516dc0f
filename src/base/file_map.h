/* file_map.h -- read-only memory mappings of files, safe against files that are truncated and disks
 * that fail while they are read.
 *
 * Truncation   Touching a page that the file no longer has, or that the disk cannot deliver, raises
 *              SIGBUS.  A handler maps zeros over the rest of the mapping and marks it as torn, so
 *              the reader runs on.  It must parse zeros without harm, as any other input, and call
 *              file_map_check before it uses what it has read.  The last page of a truncated file
 *              ends in zeros without a signal: the check compares the file's size, too.
 * Threads      Any number may read and check a mapping.
 * Cost         Nothing while reading; a check is one stat(). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdint.h>

struct file_guard; /* the handler's entry for one mapping */

/* A mapping of a regular file; an empty file has data NULL and size 0. */
struct file_map {
    const unsigned char *data;
    uint64_t size;
    struct file_guard *guard; /* NULL: an empty file, or bytes that no file backs */
};
/* MISSING, IO, DATA: as file_open. */
enum status file_map_open(struct file_map *m, const char *path);
void file_map_close(struct file_map *m);

/* Whether all bytes read so far were the file's.  DATA: the file was truncated after it was opened.
 * IO: the system could not read it.  Both name the file and the offset.  A file that was modified
 * in place is logged, once. */
enum status file_map_check(const struct file_map *m);
/* The same after a read that ended with `st`, whose cause may be that the mapping is torn. */
enum status file_map_check_after(const struct file_map *m, enum status st);

/* Drops the pages within [begin, end), and some before, from this process (MADV_DONTNEED). Touching
 * them maps them again. */
void file_map_evict(const struct file_map *m, uint64_t begin, uint64_t end);
