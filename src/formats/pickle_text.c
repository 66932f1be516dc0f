// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle_text.h"

#include <string.h>

static void put(struct text *t, int opcode)
{
    unsigned char byte = (unsigned char)opcode;
    text_add(t, &byte, 1);
}

static void put_number(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) put(t, (int)(value >> (8 * i) & 255));
}

void pickle_put_begin(struct text *t) { text_add(t, "\x80\2", 2); }
void pickle_put_end(struct text *t) { put(t, '.'); }
void pickle_put_none(struct text *t) { put(t, 'N'); }
void pickle_put_bool(struct text *t, bool value) { put(t, value ? 0x88 : 0x89); }
void pickle_put_empty(struct text *t) { put(t, ')'); }
void pickle_put_dict(struct text *t) { put(t, '}'); }
void pickle_put_list(struct text *t) { put(t, ']'); }
void pickle_put_mark(struct text *t) { put(t, '('); }
void pickle_put_tuple(struct text *t) { put(t, 't'); }
void pickle_put_items(struct text *t) { put(t, 'u'); }
void pickle_put_appends(struct text *t) { put(t, 'e'); }
void pickle_put_call(struct text *t) { put(t, 'R'); }
void pickle_put_new(struct text *t) { put(t, 0x81); }
void pickle_put_build(struct text *t) { put(t, 'b'); }
void pickle_put_persistent(struct text *t) { put(t, 'Q'); }

void pickle_put_integer(struct text *t, int64_t value)
{
    if (value >= 0 && value < 256) {
        put(t, 'K'), put_number(t, (uint64_t)value, 1);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put(t, 'J'), put_number(t, (uint64_t)value, 4);
    } else {
        put(t, 0x8a), put(t, 8), put_number(t, (uint64_t)value, 8);
    }
}

/* Big-endian, alone of all. */
void pickle_put_real(struct text *t, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    put(t, 'G');
    put_number(t, __builtin_bswap64(bits), 8);
}

void pickle_put_text(struct text *t, const char *text)
{
    put(t, 'X'), put_number(t, strlen(text), 4);
    text_adds(t, text);
}

void pickle_put_class(struct text *t, const char *module, const char *name)
{
    text_addf(t, "c%s\n%s\n", module, name);
}

void pickle_put_integers(struct text *t, const int64_t *values, int count)
{
    if (!count) {
        put(t, ')');
        return;
    }
    put(t, '(');
    for (int i = 0; i < count; i++) pickle_put_integer(t, values[i]);
    put(t, 't');
}
