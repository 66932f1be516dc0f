// SPDX-License-Identifier: Apache-2.0
#include "formats/parquet_values.h"

#include "formats/bit_packing.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 1024, MAX_PAGE_BYTES = 1 << 30 };
/* Encoding in parquet.thrift; PLAIN is PARQUET_PLAIN. */
enum {
    PLAIN_DICTIONARY = 2,
    RLE,
    DELTA = 5,
    DELTA_LENGTH,
    DELTA_BYTE_ARRAY,
    RLE_DICTIONARY,
    BYTE_STREAM_SPLIT
};

static bool is_bytes(const struct parquet_leaf *leaf)
{
    return leaf->type == PARQUET_BYTES || leaf->type == PARQUET_FIXED || leaf->type == PARQUET_I96;
}

/* Bytes of a PLAIN value; 0 if it has a length prefix or is a bit. */
static size_t width_of(const struct parquet_leaf *leaf)
{
    static const size_t widths[PARQUET_TYPES] = {[PARQUET_I32] = 4,
                                                 [PARQUET_I64] = 8,
                                                 [PARQUET_I96] = 12,
                                                 [PARQUET_F32] = 4,
                                                 [PARQUET_F64] = 8};
    return leaf->type == PARQUET_FIXED ? leaf->type_bytes : widths[leaf->type];
}

static void reserve_values(struct parquet_values *v, bool bytes, size_t count)
{
    if (count > v->capacity || !(bytes ? (void *)v->bytes : (void *)v->numbers)) {
        v->capacity = count > v->capacity ? count : v->capacity;
        if (bytes)
            v->bytes = heap_grow(v->bytes, v->capacity + 1, sizeof *v->bytes);
        else
            v->numbers = heap_grow(v->numbers, v->capacity + 1, sizeof *v->numbers);
    }
    v->count = count;
}

void parquet_values_release(struct parquet_values *v)
{
    free(v->bytes);
    free(v->numbers);
    text_release(&v->storage);
    *v = (struct parquet_values){0};
}

/* Decodes fixed-width values, all of which are in bounds. */
static void set_fixed(struct parquet_values *out, const struct parquet_leaf *leaf,
                      const unsigned char *at, size_t count)
{
    size_t width = width_of(leaf);
    for (size_t i = 0; i < count; i++, at += width) {
        uint64_t bits = 0;
        if (is_bytes(leaf)) {
            out->bytes[i] = (struct byte_span){at, width};
            continue;
        }
        for (size_t b = 0; b < width; b++) bits |= (uint64_t)at[b] << (8 * b);
        out->numbers[i] = leaf->type == PARQUET_I32 ? (int32_t)(uint32_t)bits : (int64_t)bits;
    }
}

static enum status read_plain(struct parquet_values *out, const struct parquet_encoded *in)
{
    const struct parquet_leaf *leaf = in->leaf;
    struct reader r = in->bytes;
    size_t count = in->count;
    const unsigned char *at;
    size_t bytes;
    if (leaf->type == PARQUET_BYTES) {
        for (size_t i = 0; i < count; i++) {
            uint32_t len = 0;
            if (reader_left(&r) < 4) return reader_u32(&r, &len, "a string's length");
            memcpy(&len, r.at, 4);
            r.at += 4;
            if (len > reader_left(&r)) return reader_bytes(&r, len, &at, "a string");
            out->bytes[i] = (struct byte_span){r.at, len};
            r.at += len;
        }
        return STATUS_OK;
    }
    if (leaf->type == PARQUET_BOOL) {
        TRY(reader_bytes(&r, count / 8 + (count % 8 != 0), &at, "booleans"));
        for (size_t i = 0; i < count; i++) out->numbers[i] = at[i / 8] >> (i % 8) & 1;
        return STATUS_OK;
    }
    TRY(reader_count(&r, count, width_of(leaf), &bytes, "values"));
    TRY(reader_bytes(&r, bytes, &at, "values"));
    set_fixed(out, leaf, at, count);
    return STATUS_OK;
}

static enum status read_indices(struct parquet_values *out, const struct parquet_encoded *in)
{
    const struct parquet_values *dictionary = in->dictionary;
    struct reader r = in->bytes;
    size_t count = in->count;
    uint32_t indices[BATCH];
    struct bit_packing h;
    uint8_t width;
    if (!dictionary) FAIL(DATA, "%s: dictionary-encoded page without a dictionary page", r.name);
    TRY(reader_u8(&r, &width, "the bit width of dictionary indices"));
    TRY(bit_packing_init(&h, r, width));
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BATCH ? count - at : BATCH;
        TRY(bit_packing_read(&h, indices, n));
        for (size_t i = 0; i < n; i++) {
            if (indices[i] >= dictionary->count)
                FAIL(DATA, "%s: dictionary index %u is out of range: the dictionary has %zu values",
                     r.name, indices[i], dictionary->count);
            if (is_bytes(in->leaf))
                out->bytes[at + i] = dictionary->bytes[indices[i]];
            else
                out->numbers[at + i] = dictionary->numbers[indices[i]];
        }
        at += n;
    }
    return STATUS_OK;
}

/* RLE-encoded booleans: a u32 length, then the hybrid. */
static enum status read_rle_bools(struct parquet_values *out, struct reader r, size_t count)
{
    uint32_t values[BATCH], len;
    struct reader runs = {.name = r.name};
    struct bit_packing h;
    TRY(reader_u32(&r, &len, "the length of runs"));
    TRY(reader_bytes(&r, len, &runs.at, "runs"));
    runs.end = runs.at + len;
    TRY(bit_packing_init(&h, runs, 1));
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BATCH ? count - at : BATCH;
        TRY(bit_packing_read(&h, values, n));
        for (size_t i = 0; i < n; i++) out->numbers[at + i] = values[i];
        at += n;
    }
    return STATUS_OK;
}

/* DELTA_LENGTH_BYTE_ARRAY: all lengths, then the concatenated bytes. */
static enum status read_delta_length_bytes(struct parquet_values *out, struct reader *r,
                                           size_t count, int64_t *lengths)
{
    TRY(bit_packing_read_deltas(r, lengths, count, true));
    for (size_t i = 0; i < count; i++) {
        if (lengths[i] < 0 || (uint64_t)lengths[i] > reader_left(r))
            FAIL(DATA, "%s: string of %lld bytes exceeds the %zu bytes left", r->name,
                 (long long)lengths[i], reader_left(r));
        out->bytes[i] = (struct byte_span){r->at, (size_t)lengths[i]};
        r->at += lengths[i];
    }
    return STATUS_OK;
}

/* DELTA_BYTE_ARRAY: the lengths of prefixes shared with the previous value, then the suffixes. */
static enum status read_delta_byte_array(struct parquet_values *out,
                                         const struct parquet_encoded *in, int64_t *prefixes,
                                         int64_t *lengths)
{
    struct reader r = in->bytes;
    size_t count = in->count, width = width_of(in->leaf); /* 0: lengths vary */
    size_t total = 0, previous_len = 0;
    TRY(bit_packing_read_deltas(&r, prefixes, count, true));
    TRY(read_delta_length_bytes(out, &r, count, lengths));
    for (size_t i = 0; i < count; i++) {
        if (prefixes[i] < 0 || (uint64_t)prefixes[i] > previous_len)
            FAIL(DATA, "%s: prefix of %lld bytes, but the previous string has %zu", r.name,
                 (long long)prefixes[i], previous_len);
        previous_len = (size_t)prefixes[i] + out->bytes[i].len;
        if (width && previous_len != width)
            FAIL(DATA, "%s: value of %zu bytes: expected %zu", r.name, previous_len, width);
        total += previous_len;
        if (total > MAX_PAGE_BYTES) FAIL(UNSUPPORTED, "%s: page exceeds 1 GiB", r.name);
    }
    text_clear(&out->storage);
    text_reserve(&out->storage, total);
    char *to = out->storage.data, *previous = to;
    for (size_t i = 0; i < count; i++) {
        size_t prefix = (size_t)prefixes[i], len = out->bytes[i].len;
        memcpy(to, previous, prefix);
        if (len) memcpy(to + prefix, out->bytes[i].data, len);
        out->bytes[i] = (struct byte_span){(unsigned char *)to, prefix + len};
        previous = to, to += prefix + len;
    }
    return STATUS_OK;
}

static enum status read_deltas_of_bytes(struct parquet_values *out,
                                        const struct parquet_encoded *in)
{
    int64_t *lengths = heap_grow(NULL, 2 * in->count + 1, sizeof *lengths);
    struct reader r = in->bytes;
    enum status st = in->encoding == DELTA_BYTE_ARRAY
                         ? read_delta_byte_array(out, in, lengths, lengths + in->count)
                         : read_delta_length_bytes(out, &r, in->count, lengths);
    free(lengths);
    return st;
}

/* BYTE_STREAM_SPLIT: the first bytes of all values, then the second bytes, and so on. */
static enum status read_byte_stream_split(struct parquet_values *out,
                                          const struct parquet_encoded *in)
{
    const struct parquet_leaf *leaf = in->leaf;
    struct reader r = in->bytes;
    size_t count = in->count;
    const unsigned char *at;
    size_t bytes, width = width_of(leaf);
    TRY(reader_count(&r, count, width, &bytes, "values"));
    TRY(reader_bytes(&r, bytes, &at, "values"));
    text_clear(&out->storage);
    text_reserve(&out->storage, bytes);
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < width; b++)
            out->storage.data[i * width + b] = (char)at[b * count + i];
    set_fixed(out, leaf, (unsigned char *)out->storage.data, count);
    return STATUS_OK;
}

enum status parquet_values_read(struct parquet_values *out, const struct parquet_encoded *in)
{
    enum parquet_type t = in->leaf->type;
    int64_t encoding = in->encoding;
    struct reader r = in->bytes;
    size_t count = in->count;
    if (count > PARQUET_MAX_PAGE_VALUES)
        FAIL(UNSUPPORTED, "%s: page of %zu values exceeds the limit of %d", r.name, count,
             PARQUET_MAX_PAGE_VALUES);
    if (encoding == PARQUET_PLAIN && t != PARQUET_FIXED && count / 8 > reader_left(&r))
        FAIL(DATA, "%s: page of %zu values in only %zu bytes", r.name, count, reader_left(&r));
    reserve_values(out, is_bytes(in->leaf), count);
    if (encoding == PARQUET_PLAIN) return read_plain(out, in);
    if (encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY)
        return count ? read_indices(out, in) : STATUS_OK;
    if (encoding == RLE && t == PARQUET_BOOL)
        return count ? read_rle_bools(out, r, count) : STATUS_OK;
    if (encoding == DELTA && (t == PARQUET_I32 || t == PARQUET_I64))
        return bit_packing_read_deltas(&r, out->numbers, count, t == PARQUET_I32);
    if ((encoding == DELTA_LENGTH && t == PARQUET_BYTES) ||
        (encoding == DELTA_BYTE_ARRAY && (t == PARQUET_BYTES || t == PARQUET_FIXED)))
        return read_deltas_of_bytes(out, in);
    if (encoding == BYTE_STREAM_SPLIT && t != PARQUET_BOOL && t != PARQUET_BYTES)
        return read_byte_stream_split(out, in);
    FAIL(UNSUPPORTED, "%s: values of type %d in encoding %lld are not supported", r.name, t,
         (long long)encoding);
}
