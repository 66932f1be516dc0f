/* protobuf.h -- the wire format of protocol buffers: keys, varints, and nested messages.
 *
 * Memory   The writer appends to a text.  The reader's fields point into the message.
 * Source   protobuf.dev/programming-guides/encoding. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

void protobuf_add_varint(struct text *t, uint64_t value);
size_t protobuf_varint_bytes(uint64_t value);
/* A field with an integer, bool or enum; a negative int32 or int64 is cast to uint64_t. */
void protobuf_add_int(struct text *t, int field, uint64_t value);
void protobuf_add_bytes(struct text *t, int field, const void *bytes, size_t len);
void protobuf_add_string(struct text *t, int field, const char *string);
/* A field that is a message: what is appended between the two calls.  Messages nest. */
size_t protobuf_begin(struct text *t, int field);
void protobuf_end(struct text *t, size_t start);

/* The fields of a message, in order. */
struct protobuf_field {
    int number;
    uint64_t value;    /* of a varint or a fixed 32 or 64 bits */
    const char *bytes; /* of a string or message; otherwise NULL */
    size_t len;
};
struct protobuf_reader {
    const char *at, *end;
};
/* False at the end, or where the bytes are not a field. */
bool protobuf_next(struct protobuf_reader *r, struct protobuf_field *f);
/* The first field of this number that is a string or message. */
bool protobuf_find(struct protobuf_reader message, int number, struct protobuf_reader *out);
