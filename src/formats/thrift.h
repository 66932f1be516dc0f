/* thrift.h -- structs of Thrift's compact protocol, the fields that are wanted of them.
 *
 * A caller lists the fields it wants by number; the others are stepped over, nested or not.
 * Memory   Bytes and lists are places in what is read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

struct thrift_bytes {
    const unsigned char *data; /* NULL: the field is not there */
    size_t len;
};

/* A list, to be read by as many calls as it has items. */
struct thrift_list {
    struct reader items;
    size_t count; /* each takes a byte at least, so there are no more than bytes */
    int type;
};

/* One wanted field: the one of the pointers that is set says of what type it must be. */
struct thrift_field {
    int id;
    int64_t *number; /* i8 to i64, and a truth value as 0 or 1; kept as it is if absent */
    struct thrift_bytes *bytes;
    struct thrift_list *list;
    const struct thrift_field *fields; /* a struct; its own fields, ended by {0} */
    bool *present;                     /* a struct that is there; with or without `fields` */
};

enum { THRIFT_STRUCT = 12 };

/* A struct into the fields wanted of it, ended by {0}.  DATA: it ends early, is nested too deep, or
 * a wanted field has another type. */
enum status thrift_read(struct reader *r, const struct thrift_field *wanted);
