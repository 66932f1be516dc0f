/* line_reader.h -- reads the lines of a gzip or zstd file one after another. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct line_reader; /* one open file; its name decides between gzip and zstd */

/* MISSING, IO, DATA: as file_open. */
enum status line_reader_open(struct line_reader **out, const char *path);
/* The same from an open file; takes ownership of it, and closes it even on failure. */
enum status line_reader_from_file(struct line_reader **out, FILE *file, const char *path);
void line_reader_close(struct line_reader *l);
/* The next line without its line break, valid until the next call; *end: end of file.
 * DATA: the file is damaged or truncated.  RECORD: the line is too long; the next call returns the
 * line after it. */
enum status line_reader_next(struct line_reader *l, const char **line, size_t *len, bool *end);
/* The longest line, 1 GiB by default. */
void line_reader_set_limit(struct line_reader *l, size_t bytes);

/* How many bytes of the file the lines so far take up, about: a share of what was decompressed. */
uint64_t line_reader_bytes(const struct line_reader *l);

bool line_reader_handles(const char *path); /* *.gz or *.zst */
