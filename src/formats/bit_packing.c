// SPDX-License-Identifier: Apache-2.0
#include "formats/bit_packing.h"

#include <string.h>

/* `width` bits from bit `at` on of bytes that hold them, least significant first. */
static inline uint64_t bits_at(const unsigned char *bytes, size_t len, uint64_t at, int width)
{
    uint64_t word = 0, mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    size_t byte = at / 8;
    int shift = (int)(at % 8);
    if (len - byte >= 8) {
        memcpy(&word, bytes + byte, 8);
    } else {
        for (size_t i = byte; i < len; i++) word |= (uint64_t)bytes[i] << (8 * (i - byte));
    }
    word >>= shift;
    if (shift + width > 64) word |= (uint64_t)bytes[byte + 8] << (64 - shift);
    return word & mask;
}

static enum status varint(struct reader *r, uint64_t *out)
{
    uint8_t byte;
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        TRY(reader_u8(r, &byte, "a run"));
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return STATUS_OK;
    }
    FAIL(DATA, "%s: a run's length has more than 64 bits", r->name);
}

enum status hybrid_init(struct hybrid *h, struct reader bytes, int width)
{
    *h = (struct hybrid){.bytes = bytes, .width = width};
    if (width < 0 || width > 32) FAIL(DATA, "%s: values of %d bits", bytes.name, width);
    return STATUS_OK;
}

/* The last group may be cut off where its values are not needed: so what is there counts. */
static enum status next_run(struct hybrid *h)
{
    const unsigned char *at;
    uint64_t head, width = (uint64_t)h->width;
    if (h->bit) { /* behind the packed run */
        h->bytes.at += h->bit / 8 + (h->bit % 8 != 0);
        h->bit = 0;
    }
    TRY(varint(&h->bytes, &head));
    if (head & 1) {
        uint64_t groups = head >> 1, there = reader_left(&h->bytes);
        h->packed = groups > UINT64_MAX / 8 ? UINT64_MAX : groups * 8;
        if (width && h->packed > there * 8 / width) h->packed = there * 8 / width;
        return STATUS_OK;
    }
    h->same = head >> 1, h->value = 0;
    TRY(reader_bytes(&h->bytes, (width + 7) / 8, &at, "a run's value"));
    for (size_t i = 0; i < (width + 7) / 8; i++) h->value |= (uint32_t)at[i] << (8 * i);
    if (width < 32 && h->value >> width)
        FAIL(DATA, "%s: a run of %u, which has more than %d bits", h->bytes.name, h->value,
             h->width);
    return STATUS_OK;
}

static enum status need_run(struct hybrid *h)
{
    while (!h->same && !h->packed) TRY(next_run(h));
    return STATUS_OK;
}

enum status hybrid_take(struct hybrid *h, uint32_t *out, size_t count)
{
    while (count) {
        TRY(need_run(h));
        uint64_t run = h->same ? h->same : h->packed;
        size_t n = run < count ? (size_t)run : count;
        if (h->same) {
            for (size_t i = 0; i < n; i++) out[i] = h->value;
            h->same -= n;
        } else {
            const unsigned char *bytes = h->bytes.at;
            size_t len = reader_left(&h->bytes);
            for (size_t i = 0; i < n; i++, h->bit += (uint64_t)h->width)
                out[i] = h->width ? (uint32_t)bits_at(bytes, len, h->bit, h->width) : 0;
            h->packed -= n;
        }
        out += n, count -= n;
    }
    return STATUS_OK;
}

struct delta {
    uint64_t block, miniblocks, total; /* values; the sizes are of the file */
    bool is_32;
};

static enum status zigzag(struct reader *r, uint64_t *out)
{
    TRY(varint(r, out));
    *out = *out >> 1 ^ (0 - (*out & 1));
    return STATUS_OK;
}

static int64_t wrapped(uint64_t value, bool is_32)
{
    return is_32 ? (int32_t)(uint32_t)value : (int64_t)value;
}

static enum status delta_head(struct reader *r, struct delta *d, size_t count)
{
    enum { MOST = 1 << 20 };
    TRY(varint(r, &d->block));
    TRY(varint(r, &d->miniblocks));
    TRY(varint(r, &d->total));
    if (!d->block || d->block > MOST || !d->miniblocks || d->miniblocks > d->block ||
        d->block % d->miniblocks || d->block / d->miniblocks % 8)
        FAIL(DATA, "%s: delta blocks of %llu values in %llu parts", r->name,
             (unsigned long long)d->block, (unsigned long long)d->miniblocks);
    if (d->total != count)
        FAIL(DATA, "%s: %llu delta values where %zu are wanted", r->name,
             (unsigned long long)d->total, count);
    return STATUS_OK;
}

/* One block: its least delta, the widths of its parts, and those parts that hold values. */
static enum status delta_block(struct reader *r, const struct delta *d, uint64_t *value,
                               int64_t *out, size_t count)
{
    const unsigned char *widths, *packed;
    uint64_t least, each = d->block / d->miniblocks;
    TRY(zigzag(r, &least));
    TRY(reader_bytes(r, d->miniblocks, &widths, "the widths of a delta block"));
    for (uint64_t m = 0; m < d->miniblocks && count; m++) {
        size_t bytes = each / 8 * widths[m], n = each < count ? each : count;
        if (widths[m] > 64) FAIL(DATA, "%s: deltas of %d bits", r->name, widths[m]);
        TRY(reader_bytes(r, bytes, &packed, "a delta block"));
        for (size_t i = 0; i < n; i++) {
            uint64_t more = widths[m] ? bits_at(packed, bytes, i * widths[m], widths[m]) : 0;
            *value += least + more;
            out[i] = wrapped(*value, d->is_32);
        }
        out += n, count -= n;
    }
    return STATUS_OK;
}

enum status delta_read(struct reader *r, int64_t *out, size_t count, bool is_32)
{
    struct delta d = {.is_32 = is_32};
    uint64_t value;
    TRY(delta_head(r, &d, count));
    TRY(zigzag(r, &value));
    if (count) *out = wrapped(value, is_32);
    for (size_t at = 1; at < count;) {
        size_t left = count - at, n = d.block < left ? d.block : left;
        TRY(delta_block(r, &d, &value, out + at, n));
        at += n;
    }
    return STATUS_OK;
}
