// SPDX-License-Identifier: Apache-2.0
#include "formats/protobuf.h"

#include <string.h>

enum { VARINT = 0, I64 = 1, LEN = 2, I32 = 5, VARINT_BYTES = 10 };

static size_t format_varint(char *at, uint64_t value)
{
    size_t n = 0;
    for (; value >= 128; value >>= 7) at[n++] = (char)((value & 127) | 128);
    at[n++] = (char)value;
    return n;
}

void protobuf_add_varint(struct text *t, uint64_t value)
{
    char at[VARINT_BYTES];
    text_add(t, at, format_varint(at, value));
}

size_t protobuf_varint_bytes(uint64_t value)
{
    char at[VARINT_BYTES];
    return format_varint(at, value);
}

static void add_key(struct text *t, int field, int wire_type)
{
    protobuf_add_varint(t, (uint64_t)field << 3 | (uint64_t)wire_type);
}

void protobuf_add_int(struct text *t, int field, uint64_t value)
{
    add_key(t, field, VARINT);
    protobuf_add_varint(t, value);
}

void protobuf_add_bytes(struct text *t, int field, const void *bytes, size_t len)
{
    add_key(t, field, LEN);
    protobuf_add_varint(t, len);
    text_add(t, bytes, len);
}

void protobuf_add_string(struct text *t, int field, const char *string)
{
    protobuf_add_bytes(t, field, string, strlen(string));
}

size_t protobuf_begin(struct text *t, int field)
{
    add_key(t, field, LEN);
    return t->len;
}

/* Inserts the length in front of the message. */
void protobuf_end(struct text *t, size_t start)
{
    char at[VARINT_BYTES];
    size_t len = t->len - start, n = format_varint(at, len);
    text_add(t, at, n);
    memmove(t->data + start + n, t->data + start, len);
    memcpy(t->data + start, at, n);
}

static bool read_varint(struct protobuf_reader *r, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; r->at < r->end && shift < 64; shift += 7) {
        unsigned char byte = (unsigned char)*r->at++;
        if (shift == 63 && byte > 1) return false; /* more than 64 bits */
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

static bool read_fixed(struct protobuf_reader *r, int bytes, uint64_t *value)
{
    if (r->end - r->at < bytes) return false;
    *value = 0;
    for (int i = 0; i < bytes; i++) *value |= (uint64_t)(unsigned char)*r->at++ << (8 * i);
    return true;
}

bool protobuf_next(struct protobuf_reader *r, struct protobuf_field *f)
{
    uint64_t key;
    *f = (struct protobuf_field){0};
    if (!read_varint(r, &key) || key >> 3 == 0 || key >> 3 > INT32_MAX >> 3) return false;
    f->number = (int)(key >> 3);
    switch (key & 7) {
    case VARINT: return read_varint(r, &f->value);
    case I64: return read_fixed(r, 8, &f->value);
    case I32: return read_fixed(r, 4, &f->value);
    case LEN:
        if (!read_varint(r, &f->value) || f->value > (uint64_t)(r->end - r->at)) return false;
        f->bytes = r->at, f->len = (size_t)f->value;
        r->at += f->len;
        return true;
    default: return false;
    }
}

bool protobuf_find(struct protobuf_reader message, int number, struct protobuf_reader *out)
{
    struct protobuf_field f;
    while (protobuf_next(&message, &f)) {
        if (f.number != number || !f.bytes) continue;
        *out = (struct protobuf_reader){f.bytes, f.bytes + f.len};
        return true;
    }
    return false;
}
