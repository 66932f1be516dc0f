/* npy.h -- reads NumPy's .npy files: arrays of integers with one or two dimensions.
 *
 * Axes     Row-major, `rows` x `columns`.  A one-dimensional array has one row.
 * Memory   The file is mapped; elements are not copied.
 * Source   NEP 1, and numpy/lib/format.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"

struct npy {
    char *path;
    struct file_map map;
    const unsigned char *data;
    int num_axes;   /* 1 or 2 */
    int item_bytes; /* 1, 2, 4 or 8 */
    bool is_signed;
    uint64_t rows, columns;
};

/* MISSING, IO.  DATA: not a .npy file, or its size does not match its header.  UNSUPPORTED: an
 * unknown version, a dtype that is not a little-endian integer, Fortran order, or no or more than
 * two dimensions. */
enum status npy_open(struct npy *n, const char *path);
void npy_close(struct npy *n);
/* npy_open for a file image that the caller keeps.  The caller sets n->path, and calls npy_close
 * even after a failure. */
enum status npy_parse(struct npy *n, const unsigned char *bytes, uint64_t size);

/* Copies `count` elements from element `from` on, which must exist, as token IDs.  RECORD: one is
 * negative, or not below vocab_size (0: or does not fit int32_t). */
enum status npy_read(const struct npy *n, uint64_t from, uint64_t count, int64_t vocab_size,
                     int32_t *ids);
