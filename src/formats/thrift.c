// SPDX-License-Identifier: Apache-2.0
#include "formats/thrift.h"

enum { TRUE = 1, FALSE, I8, I16, I32, I64, DOUBLE, BYTES, LIST, SET, MAP, STRUCT = THRIFT_STRUCT };
enum { MAX_DEPTH = 64 };

static enum status read_zigzag(struct reader *r, int64_t *out)
{
    uint64_t bits;
    TRY(reader_varint(r, &bits, "an integer"));
    *out = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
    return STATUS_OK;
}

static enum status read_bytes(struct reader *r, struct thrift_bytes *out)
{
    uint64_t len;
    size_t bytes;
    TRY(reader_varint(r, &len, "a string's length"));
    TRY(reader_count(r, len, 1, &bytes, "a string"));
    out->len = bytes;
    return reader_bytes(r, bytes, &out->data, "a string");
}

static enum status read_list_header(struct reader *r, struct thrift_list *out)
{
    uint8_t head;
    uint64_t count;
    size_t bytes;
    TRY(reader_u8(r, &head, "a list"));
    count = head >> 4;
    if (count == 15) TRY(reader_varint(r, &count, "a list's length"));
    TRY(reader_count(r, count, 1, &bytes, "a list"));
    *out = (struct thrift_list){*r, bytes, head & 15};
    return STATUS_OK;
}

static enum status skip_value(struct reader *r, int type, int depth);

static enum status skip_items(struct reader *r, size_t count, int type, int depth)
{
    const unsigned char *at;
    for (size_t i = 0; i < count; i++) { /* a bool in a container takes a byte */
        if (type == TRUE || type == FALSE)
            TRY(reader_bytes(r, 1, &at, "a bool"));
        else
            TRY(skip_value(r, type, depth));
    }
    return STATUS_OK;
}

static enum status skip_map(struct reader *r, int depth)
{
    uint64_t count;
    uint8_t types;
    size_t bytes;
    TRY(reader_varint(r, &count, "a map's length"));
    if (!count) return STATUS_OK;
    TRY(reader_u8(r, &types, "a map"));
    TRY(reader_count(r, count, 1, &bytes, "a map"));
    for (size_t i = 0; i < bytes; i++) {
        TRY(skip_items(r, 1, types >> 4, depth));
        TRY(skip_items(r, 1, types & 15, depth));
    }
    return STATUS_OK;
}

/* Reads a field header; *type 0 is the end of the struct. */
static enum status read_field_header(struct reader *r, int64_t *id, int *type)
{
    uint8_t head;
    TRY(reader_u8(r, &head, "a field"));
    *type = head & 15;
    if (!*type) return STATUS_OK;
    *id += head >> 4;
    if (head >> 4) return STATUS_OK;
    TRY(read_zigzag(r, id));
    if (*id < INT16_MIN || *id > INT16_MAX) /* later fields add to it */
        FAIL(DATA, "%s: Thrift field ID %lld does not fit in 16 bits", r->name, (long long)*id);
    return STATUS_OK;
}

static enum status skip_value(struct reader *r, int type, int depth)
{
    struct thrift_bytes bytes;
    struct thrift_list list;
    int64_t number;
    if (depth > MAX_DEPTH) FAIL(DATA, "%s: Thrift structs are nested too deeply", r->name);
    switch (type) {
    case TRUE:
    case FALSE: return STATUS_OK;
    case I8: return reader_bytes(r, 1, &bytes.data, "a byte");
    case I16:
    case I32:
    case I64: return read_zigzag(r, &number);
    case DOUBLE: return reader_bytes(r, 8, &bytes.data, "a double");
    case BYTES: return read_bytes(r, &bytes);
    case LIST:
    case SET:
        TRY(read_list_header(r, &list));
        return skip_items(r, list.count, list.type, depth + 1);
    case MAP: return skip_map(r, depth + 1);
    case STRUCT:
        for (int64_t id = 0;;) {
            TRY(read_field_header(r, &id, &type));
            if (!type) return STATUS_OK;
            TRY(skip_value(r, type, depth + 1));
        }
    }
    FAIL(DATA, "%s: unknown Thrift type %d", r->name, type);
}

static enum status read_number(struct reader *r, int type, int64_t *out)
{
    uint8_t byte;
    if (type == TRUE || type == FALSE) {
        *out = type == TRUE;
        return STATUS_OK;
    }
    if (type != I8) return read_zigzag(r, out);
    TRY(reader_u8(r, &byte, "a byte"));
    *out = (int8_t)byte;
    return STATUS_OK;
}

static enum status read_field(struct reader *r, const struct thrift_field *f, int type)
{
    bool type_matches = f->number  ? type >= TRUE && type <= I64
                        : f->bytes ? type == BYTES
                        : f->list  ? type == LIST || type == SET
                                   : type == STRUCT;
    if (!type_matches)
        FAIL(DATA, "%s: Thrift field %d has unexpected type %d", r->name, f->id, type);
    if (f->number) return read_number(r, type, f->number);
    if (f->bytes) return read_bytes(r, f->bytes);
    if (f->list) {
        struct reader from = *r;
        TRY(read_list_header(&from, f->list));
        return skip_value(r, type, 0);
    }
    if (f->present) *f->present = true;
    return f->fields ? thrift_read(r, f->fields) : skip_value(r, type, 0);
}

enum status thrift_read(struct reader *r, const struct thrift_field *fields)
{
    int type;
    for (int64_t id = 0;;) {
        TRY(read_field_header(r, &id, &type));
        if (!type) return STATUS_OK;
        const struct thrift_field *f = fields;
        while (f->id && f->id != id) f++;
        TRY(f->id ? read_field(r, f, type) : skip_value(r, type, 0));
    }
}
