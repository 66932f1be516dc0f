/* npz.h -- NumPy's .npz, written: a ZIP archive with a .npy file (NEP 1) of 64-bit integers for
 * each name, as numpy.savez makes of lists of Python's numbers.
 *
 * Memory   The archive grows in memory and is written at once by npz_close. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/zip.h"

#include <stddef.h>

struct npz_writer {
    struct zip_writer zip;
    struct text bytes;
};

/* A list, and a number alone (an array without axes). */
void npz_add_list(struct npz_writer *w, const char *name, const int32_t *values, size_t count);
void npz_add_number(struct npz_writer *w, const char *name, int64_t value);
/* Replaces the file at once or not at all.  IO. */
enum status npz_close(struct npz_writer *w, const char *path);
void npz_release(struct npz_writer *w); /* fine after close, too */
