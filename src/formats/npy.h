/* npy.h -- arrays of whole numbers as numpy saves them: .npy of one or two axes.
 *
 * Axes     A row of `columns` numbers after the other; of one axis there is one row.
 * Memory   The file is mapped; nothing of it is copied. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

struct npy {
    char *path;
    struct file_map map;
    const unsigned char *data;
    int num_axes;   /* 1 or 2 */
    int item_bytes; /* 1, 2, 4 or 8 */
    bool is_signed;
    uint64_t rows, columns;
};

/* MISSING, IO; DATA: no .npy file, one cut off, or with bytes to spare.  UNSUPPORTED: what it holds
 * that is not read: another version, numbers that are not whole or big-endian, axes in Fortran's
 * order, none or more than two. */
enum status npy_open(struct npy *n, const char *path);
void npy_close(struct npy *n);
/* The same of bytes that stay the caller's; n->path must be set, and `n` is to be closed. */
enum status npy_parse(struct npy *n, const unsigned char *bytes, uint64_t size);

/* `count` numbers from the one at `from` on, which there must be, as ids.  DATA: one is negative,
 * or not below vocab_size (0: beyond int32_t). */
enum status npy_read(const struct npy *n, uint64_t from, uint64_t count, int64_t vocab_size,
                     int32_t *ids);
