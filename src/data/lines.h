/* lines.h -- the lines of a compressed file, one after the other. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>

struct lines; /* a file under decompression: gzip or zstd, by its name */

enum status lines_open(struct lines **out, const char *path);
/* The same of a file that is open already, and is closed with the lines, or at once on failure. */
enum status lines_take(struct lines **out, FILE *file, const char *path);
void lines_close(struct lines *l);
/* The next line without its break; *end: there is none left.  DATA: the file is damaged, or cut. */
enum status lines_next(struct lines *l, const char **line, size_t *len, bool *end);

bool lines_is_compressed(const char *path); /* .gz or .zst */
