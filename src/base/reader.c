// SPDX-License-Identifier: Apache-2.0
#include "base/reader.h"

enum status reader_bytes(struct reader *r, size_t len, const unsigned char **out, const char *what)
{
    if (len > reader_left(r))
        FAIL(DATA, "%s: %s needs %zu bytes, but only %zu are left", r->name, what, len,
             reader_left(r));
    *out = r->at;
    r->at += len;
    return STATUS_OK;
}

/* Shifts, so that the result does not depend on the CPU's byte order. */
static uint64_t little_endian(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

enum status reader_u8(struct reader *r, uint8_t *out, const char *what)
{
    const unsigned char *at;
    TRY(reader_bytes(r, 1, &at, what));
    *out = *at;
    return STATUS_OK;
}

enum status reader_u32(struct reader *r, uint32_t *out, const char *what)
{
    const unsigned char *at;
    TRY(reader_bytes(r, 4, &at, what));
    *out = (uint32_t)little_endian(at, 4);
    return STATUS_OK;
}

enum status reader_u64(struct reader *r, uint64_t *out, const char *what)
{
    const unsigned char *at;
    TRY(reader_bytes(r, 8, &at, what));
    *out = little_endian(at, 8);
    return STATUS_OK;
}

enum status reader_varint(struct reader *r, uint64_t *out, const char *what)
{
    struct reader from = *r;
    uint8_t byte;
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        TRY(reader_u8(&from, &byte, what));
        if (shift == 63 && byte > 1) break; /* one bit is left */
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte & 0x80) continue;
        r->at = from.at;
        return STATUS_OK;
    }
    FAIL(DATA, "%s: %s is a varint of more than 64 bits", r->name, what);
}

enum status reader_count(struct reader *r, uint64_t count, size_t each, size_t *bytes,
                         const char *what)
{
    if (__builtin_mul_overflow(count, each, bytes) || *bytes > reader_left(r))
        FAIL(DATA, "%s: %s claims %llu items of %zu bytes, but only %zu bytes are left", r->name,
             what, (unsigned long long)count, each, reader_left(r));
    return STATUS_OK;
}
