/* heap.h -- malloc for small tables and strings: ends the process with a message and the exit code
 * of STATUS_MEMORY instead of returning NULL.
 *
 * Memory   The caller frees with free().  Large buffers belong in an arena, which returns
 *          STATUS_MEMORY. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

void *heap(size_t bytes);                              /* zeroed */
void *heap_grow(void *old, size_t count, size_t each); /* realloc to count * each, checked */
char *heap_string(const char *string, size_t len);     /* a copy, with a NUL */
char *heap_strdup(const char *string);
