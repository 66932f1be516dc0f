/* reader.h -- bounds-checked reading of little-endian values from untrusted bytes.
 *
 * Every read checks that the bytes exist.  A failed read leaves the reader where it was.
 * Memory   Results of reader_bytes point into the span.
 * Errors   DATA: the bytes end too early; the message has the file's name and `what` was read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct reader {
    const unsigned char *at, *end;
    const char *name; /* of the file; borrowed */
};
static inline size_t reader_left(const struct reader *r) { return (size_t)(r->end - r->at); }
enum status reader_bytes(struct reader *r, size_t len, const unsigned char **out, const char *what);
enum status reader_u8(struct reader *r, uint8_t *out, const char *what);
enum status reader_u32(struct reader *r, uint32_t *out, const char *what);
enum status reader_u64(struct reader *r, uint64_t *out, const char *what);
/* A base-128 varint, as in Thrift and protocol buffers.  DATA: also if it exceeds 64 bits. */
enum status reader_varint(struct reader *r, uint64_t *out, const char *what);
/* Checks that `count` items of `each` bytes can still be read, before they are allocated, and sets
 * *bytes to their size.  Does not advance. */
enum status reader_count(struct reader *r, uint64_t count, size_t each, size_t *bytes,
                         const char *what);
