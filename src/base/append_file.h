/* append_file.h -- a file that only grows, such as a log, and that is not worth a run: a record
 * that cannot be written, as on a full disk, is kept and written with a later one.
 *
 * Memory   Allocates only while writing fails, up to APPEND_FILE_LATE_BYTES; records beyond that
 *          are lost, and counted.
 * Order    Records are written in order.  While writing fails the file may end within one.  Other
 *          programs may truncate the file (it is opened with O_APPEND) or rename it; if it was
 *          deleted, the next record creates it again. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

enum { APPEND_FILE_LATE_BYTES = 1 << 20 };

struct append_file {
    int fd;           /* -1: not open */
    char *path;       /* NULL: no file */
    struct text late; /* what could not be written yet */
    int error;        /* errno of the last write that failed */
    size_t num_late;  /* records kept since writing began to fail */
    size_t num_lost;  /* records lost since then; the caller resets it */
};

/* Opens or creates the file; `flags` as of open(2), such as O_EXCL, or 0.  IO. */
enum status append_file_open(struct append_file *f, const char *path, int flags);
/* Names the file, which the first record opens or creates. */
void append_file_init(struct append_file *f, const char *path);
/* Closes the descriptor; the next record opens the file again.  Over NFS that is how a host learns
 * where the records of other hosts end. */
void append_file_suspend(struct append_file *f);
void append_file_close(struct append_file *f); /* one that is not open is fine */

/* Writes what is late, then the record.  False: writing failed, and the record is kept or lost. */
bool append_file_write(struct append_file *f, const void *record, size_t len);
/* Writes what is late.  False: writing failed, and some of it is late still. */
bool append_file_flush(struct append_file *f);
/* Whether writing has failed and not succeeded since, or records are lost. */
bool append_file_is_late(const struct append_file *f);
