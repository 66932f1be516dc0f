/* file_sample.h -- whether a file still has the same content, without reading all of it.
 *
 * The sample: the size, the first and the last 64 KiB, and 4 KiB at one place in each 64th of the
 * file, chosen by the size alone.  A file of at most 384 KiB is read whole.  So a file that was
 * replaced, cut or appended to has another hash; a few bytes changed in the middle of a large file
 * are found with the probability that the sample has them.
 * Errors   MISSING, IO, DATA: as file.h; DATA also if the file shrinks meanwhile. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdint.h>

/* The hash of the sample, the size, and when the file was last modified. */
enum status file_sample_hash(const char *path, uint64_t *hash, int64_t *bytes, int64_t *mtime_ns);
/* The hash of every byte, for small files; another value than that of the sample. */
enum status file_sample_hash_whole(const char *path, uint64_t *hash, int64_t *bytes);
