/* thrift.h -- reads structs in Thrift's compact protocol.
 *
 * A caller lists the fields it needs by ID; all others are skipped, nested or not.
 * Memory   Binaries and lists point into the input.
 * Source   thrift, doc/specs/thrift-compact-protocol.md. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

struct thrift_bytes {
    const unsigned char *data; /* NULL: the field is absent */
    size_t len;
};

/* A list; the caller reads its items one by one. */
struct thrift_list {
    struct reader items;
    size_t count; /* at most the bytes left: an item takes at least one */
    int type;
};

/* A field to read.  Exactly one of the pointers is set, and determines the type; `present` may
 * accompany `fields`. */
struct thrift_field {
    int id;
    int64_t *number; /* i8 to i64, or a bool as 0 or 1; unchanged if absent */
    struct thrift_bytes *bytes;
    struct thrift_list *list;
    const struct thrift_field *fields; /* of a nested struct; ends with {0} */
    bool *present;                     /* set if the nested struct is present */
};

enum { THRIFT_STRUCT = 12 };

/* Reads a struct; `fields` ends with {0}.  DATA: it ends early, is nested too deeply, one of
 * `fields` has another type, or an ID does not fit in 16 bits. */
enum status thrift_read(struct reader *r, const struct thrift_field *fields);
