/* text.h -- a byte string that grows.
 *
 * Memory   `data` is owned and always ends in a NUL that `len` does not count; { 0 } is an empty
 *          text.  Running out of memory aborts with a message: a text is never large enough for
 *          that to be the user's configuration.  Large buffers belong in an arena. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct text {
    char *data;
    size_t len, capacity;
};

void text_release(struct text *t);
void text_clear(struct text *t);                /* keeps the memory */
void text_reserve(struct text *t, size_t more); /* room for `more` bytes and the NUL */
void text_add(struct text *t, const void *bytes, size_t len);
void text_adds(struct text *t, const char *string);
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_addv(struct text *t, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));

/* malloc, calloc and realloc that abort with a message instead of returning NULL; for tables and
 * strings.  What can be large asks an arena, which reports STATUS_MEMORY. */
void *heap(size_t bytes);                              /* zeroed */
void *heap_grow(void *old, size_t count, size_t each); /* checked count * each */
char *heap_string(const char *string, size_t len);

/* Edit distance. */
size_t text_distance(const char *a, const char *b);
/* For "did you mean": is `name` nearer to `word` than *best?  Then *best becomes their distance. */
bool text_is_nearer(const char *name, const char *word, size_t *best);
