// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle_write.h"

#include "formats/pickle_opcode.h"

#include <string.h>

static void add_opcode(struct text *t, int opcode)
{
    unsigned char byte = (unsigned char)opcode;
    text_add(t, &byte, 1);
}

void pickle_write_proto(struct text *t) { text_add(t, "\x80\2", 2); }
void pickle_write_stop(struct text *t) { add_opcode(t, PICKLE_OP_STOP); }
void pickle_write_none(struct text *t) { add_opcode(t, PICKLE_OP_NONE); }
void pickle_write_bool(struct text *t, bool value)
{
    add_opcode(t, value ? PICKLE_OP_NEWTRUE : PICKLE_OP_NEWFALSE);
}
void pickle_write_empty_tuple(struct text *t) { add_opcode(t, PICKLE_OP_EMPTY_TUPLE); }
void pickle_write_empty_dict(struct text *t) { add_opcode(t, PICKLE_OP_EMPTY_DICT); }
void pickle_write_empty_list(struct text *t) { add_opcode(t, PICKLE_OP_EMPTY_LIST); }
void pickle_write_mark(struct text *t) { add_opcode(t, PICKLE_OP_MARK); }
void pickle_write_tuple(struct text *t) { add_opcode(t, PICKLE_OP_TUPLE); }
void pickle_write_setitems(struct text *t) { add_opcode(t, PICKLE_OP_SETITEMS); }
void pickle_write_appends(struct text *t) { add_opcode(t, PICKLE_OP_APPENDS); }
void pickle_write_reduce(struct text *t) { add_opcode(t, PICKLE_OP_REDUCE); }
void pickle_write_newobj(struct text *t) { add_opcode(t, PICKLE_OP_NEWOBJ); }
void pickle_write_build(struct text *t) { add_opcode(t, PICKLE_OP_BUILD); }
void pickle_write_persid(struct text *t) { add_opcode(t, PICKLE_OP_BINPERSID); }

void pickle_write_int(struct text *t, int64_t value)
{
    if (value >= 0 && value < 256) {
        add_opcode(t, PICKLE_OP_BININT1), text_add_le(t, (uint64_t)value, 1);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        add_opcode(t, PICKLE_OP_BININT), text_add_le(t, (uint64_t)value, 4);
    } else {
        add_opcode(t, PICKLE_OP_LONG1), add_opcode(t, 8), text_add_le(t, (uint64_t)value, 8);
    }
}

/* Unlike all other numbers, BINFLOAT is big-endian. */
void pickle_write_float(struct text *t, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    add_opcode(t, PICKLE_OP_BINFLOAT);
    text_add_le(t, __builtin_bswap64(bits), 8);
}

void pickle_write_string(struct text *t, const char *text)
{
    add_opcode(t, PICKLE_OP_BINUNICODE), text_add_le(t, strlen(text), 4);
    text_adds(t, text);
}

void pickle_write_bytes(struct text *t, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    size_t high = 0;
    for (size_t i = 0; i < len; i++) high += at[i] >> 7;
    pickle_write_global(t, "_codecs", "encode"), pickle_write_mark(t);
    add_opcode(t, PICKLE_OP_BINUNICODE), text_add_le(t, len + high, 4);
    for (size_t i = 0; i < len; i++) {
        if (at[i] >> 7) add_opcode(t, 0xc0 | at[i] >> 6);
        add_opcode(t, at[i] >> 7 ? 0x80 | (at[i] & 0x3f) : at[i]);
    }
    pickle_write_string(t, "latin1");
    pickle_write_tuple(t), pickle_write_reduce(t);
}

void pickle_write_global(struct text *t, const char *module, const char *name)
{
    text_addf(t, "c%s\n%s\n", module, name);
}

void pickle_write_int_tuple(struct text *t, const int64_t *values, int count)
{
    if (!count) {
        add_opcode(t, PICKLE_OP_EMPTY_TUPLE);
        return;
    }
    add_opcode(t, PICKLE_OP_MARK);
    for (int i = 0; i < count; i++) pickle_write_int(t, values[i]);
    add_opcode(t, PICKLE_OP_TUPLE);
}
