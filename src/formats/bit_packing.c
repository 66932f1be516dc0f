// SPDX-License-Identifier: Apache-2.0
#include "formats/bit_packing.h"

#include <string.h>

/* Extracts `width` bits from bit `at` on, least significant bit first.  They are in bounds. */
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

enum status bit_packing_init(struct bit_packing *b, struct reader bytes, int width)
{
    *b = (struct bit_packing){.bytes = bytes, .width = width};
    if (width < 0 || width > 32) FAIL(DATA, "%s: bit width %d: must be 0 to 32", bytes.name, width);
    return STATUS_OK;
}

/* Writers may truncate the last group of a bit-packed run, so the run ends where the bytes do. */
static enum status read_run_header(struct bit_packing *b)
{
    const unsigned char *at;
    uint64_t head, width = (uint64_t)b->width;
    if (b->bit) { /* skip the bit-packed run that ends here */
        b->bytes.at += b->bit / 8 + (b->bit % 8 != 0);
        b->bit = 0;
    }
    TRY(reader_varint(&b->bytes, &head, "a run's header"));
    if (head & 1) {
        uint64_t groups = head >> 1, bytes_left = reader_left(&b->bytes);
        b->packed = groups > UINT64_MAX / 8 ? UINT64_MAX : groups * 8;
        if (width && b->packed > bytes_left * 8 / width) b->packed = bytes_left * 8 / width;
        return STATUS_OK;
    }
    b->repeated = head >> 1, b->value = 0;
    TRY(reader_bytes(&b->bytes, (width + 7) / 8, &at, "the value of a run"));
    for (size_t i = 0; i < (width + 7) / 8; i++) b->value |= (uint32_t)at[i] << (8 * i);
    if (width < 32 && b->value >> width)
        FAIL(DATA, "%s: RLE run of value %u, which exceeds %d bits", b->bytes.name, b->value,
             b->width);
    return STATUS_OK;
}

static enum status ensure_run(struct bit_packing *b)
{
    while (!b->repeated && !b->packed) TRY(read_run_header(b));
    return STATUS_OK;
}

enum status bit_packing_read(struct bit_packing *b, uint32_t *out, size_t count)
{
    while (count) {
        TRY(ensure_run(b));
        uint64_t run = b->repeated ? b->repeated : b->packed;
        size_t n = run < count ? (size_t)run : count;
        if (b->repeated) {
            for (size_t i = 0; i < n; i++) out[i] = b->value;
            b->repeated -= n;
        } else {
            const unsigned char *bytes = b->bytes.at;
            size_t len = reader_left(&b->bytes);
            for (size_t i = 0; i < n; i++, b->bit += (uint64_t)b->width)
                out[i] = b->width ? (uint32_t)bits_at(bytes, len, b->bit, b->width) : 0;
            b->packed -= n;
        }
        out += n, count -= n;
    }
    return STATUS_OK;
}

struct delta_header {
    uint64_t block, miniblocks, total; /* block size, miniblocks per block, values */
    bool is_32;
};

static enum status read_zigzag(struct reader *r, uint64_t *out)
{
    TRY(reader_varint(r, out, "a delta"));
    *out = *out >> 1 ^ (0 - (*out & 1));
    return STATUS_OK;
}

static int64_t wrap(uint64_t value, bool is_32)
{
    return is_32 ? (int32_t)(uint32_t)value : (int64_t)value;
}

static enum status read_delta_header(struct reader *r, struct delta_header *d, size_t count)
{
    enum { MAX_BLOCK = 1 << 20 };
    TRY(reader_varint(r, &d->block, "the block size"));
    TRY(reader_varint(r, &d->miniblocks, "the number of miniblocks"));
    TRY(reader_varint(r, &d->total, "the number of deltas"));
    if (!d->block || d->block > MAX_BLOCK || !d->miniblocks || d->miniblocks > d->block ||
        d->block % d->miniblocks || d->block / d->miniblocks % 8)
        FAIL(DATA, "%s: invalid delta block size of %llu values in %llu miniblocks", r->name,
             (unsigned long long)d->block, (unsigned long long)d->miniblocks);
    if (d->total != count)
        FAIL(DATA, "%s: expected %zu delta values, got %llu", r->name, count,
             (unsigned long long)d->total);
    return STATUS_OK;
}

/* A block: its minimum delta, the bit widths of its miniblocks, then the miniblocks.  Trailing
 * miniblocks without values are absent. */
static enum status read_delta_block(struct reader *r, const struct delta_header *d, uint64_t *value,
                                    int64_t *out, size_t count)
{
    const unsigned char *widths, *packed;
    uint64_t min_delta, each = d->block / d->miniblocks;
    TRY(read_zigzag(r, &min_delta));
    TRY(reader_bytes(r, d->miniblocks, &widths, "the bit widths of a delta block"));
    for (uint64_t m = 0; m < d->miniblocks && count; m++) {
        size_t bytes = each / 8 * widths[m], n = each < count ? each : count;
        if (widths[m] > 64)
            FAIL(DATA, "%s: delta bit width %d: must be at most 64", r->name, widths[m]);
        TRY(reader_bytes(r, bytes, &packed, "a delta block"));
        for (size_t i = 0; i < n; i++) {
            uint64_t delta = widths[m] ? bits_at(packed, bytes, i * widths[m], widths[m]) : 0;
            *value += min_delta + delta;
            out[i] = wrap(*value, d->is_32);
        }
        out += n, count -= n;
    }
    return STATUS_OK;
}

enum status bit_packing_read_deltas(struct reader *r, int64_t *out, size_t count, bool is_32)
{
    struct delta_header d = {.is_32 = is_32};
    uint64_t value;
    TRY(read_delta_header(r, &d, count));
    TRY(read_zigzag(r, &value));
    if (count) *out = wrap(value, is_32);
    for (size_t at = 1; at < count;) {
        size_t left = count - at, n = d.block < left ? d.block : left;
        TRY(read_delta_block(r, &d, &value, out + at, n));
        at += n;
    }
    return STATUS_OK;
}
