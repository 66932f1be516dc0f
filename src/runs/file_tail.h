/* file_tail.h -- the lines that were appended to a file since the last look, as tail -F reads them.
 *
 * The file belongs to a run that may be writing it, or is anything at all: only complete lines are
 * passed on, lines longer than FILE_TAIL_LINE are dropped, and a FIFO or device is not opened.
 * Memory   At most FILE_TAIL_LINE bytes of an incomplete line are kept between two looks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILE_TAIL_LINE = 1 << 20 };

/* Initialize with { 0 }. */
struct file_tail {
    uint64_t device, inode; /* 0: not read yet */
    uint64_t read_to;       /* offset of the next byte to read */
    uint64_t num_skipped;   /* bytes before the first one that was read, as the file was too long */
    double written_s;       /* when the file was last written, since the Unix epoch */
    struct text partial;    /* the incomplete last line */
    bool drops_line;        /* the rest of the current line is dropped */
};

struct file_tail_visitor {
    void *context;
    void (*line)(void *context, const char *bytes, size_t len); /* without the newline */
    void (*restart)(void *context); /* the file is another one: forget earlier lines */
};

/* Passes on the new lines; of a file that it has not seen, those within the last `most` bytes.
 * Starts over if the file was replaced or became shorter.  MISSING, IO; DATA: not a regular
 * file. */
enum status file_tail_read(struct file_tail *t, const char *path, uint64_t most,
                           const struct file_tail_visitor *v);
void file_tail_release(struct file_tail *t);
