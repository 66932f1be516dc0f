/* npz.h -- writes NumPy's .npz: a ZIP archive with one int64 .npy file per array, as numpy.savez
 * writes for lists of Python integers.
 *
 * Memory   The archive is built in memory, and npz_close writes it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/zip.h"

#include <stddef.h>

struct npz_writer {
    struct zip_writer zip;
    struct text bytes;
};

/* Add a one-dimensional array, and a scalar (an array of shape ()). */
void npz_add_array(struct npz_writer *w, const char *name, const int32_t *values, size_t count);
void npz_add_scalar(struct npz_writer *w, const char *name, int64_t value);
/* Writes the file atomically.  IO. */
enum status npz_close(struct npz_writer *w, const char *path);
void npz_release(struct npz_writer *w); /* allowed after npz_close, too */
