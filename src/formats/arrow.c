// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow.h"

#include "formats/arrow_schema.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY, HEADER_BATCH };
enum { COMPRESSION_ZSTD = 1, METADATA_V5 = 4 };

/* An encapsulated message: the metadata flatbuffer, and the body that follows it. */
struct arrow_message {
    struct flatbuffer flat;
    uint64_t header, version; /* MetadataVersion */
    int type;                 /* MessageHeader; 0: end of stream */
    const unsigned char *body;
    uint64_t body_bytes;
};

static enum status read_message(struct reader *r, struct arrow_message *m)
{
    uint32_t len = 0;
    const unsigned char *bytes;
    *m = (struct arrow_message){0};
    TRY(reader_u32(r, &len, "a message"));
    if (len == UINT32_MAX)
        TRY(reader_u32(r, &len, "a message")); /* Arrow < 0.15 omits this marker */
    if (!len) return STATUS_OK;
    TRY(reader_bytes(r, len, &bytes, "a message"));
    m->flat = (struct flatbuffer){bytes, len, false};
    uint64_t root = flatbuffer_read(&m->flat, 0, 4);
    m->version = flatbuffer_scalar(&m->flat, root, 0, 2);
    m->type = (int)flatbuffer_scalar(&m->flat, root, 1, 1);
    m->header = flatbuffer_target(&m->flat, root, 2);
    m->body_bytes = flatbuffer_scalar(&m->flat, root, 3, 8);
    if (m->flat.bad || !m->type || !m->header) FAIL(DATA, "%s: corrupt message", r->name);
    if (m->body_bytes > reader_left(r))
        FAIL(DATA, "%s: message body of %llu bytes exceeds the %zu bytes left", r->name,
             (unsigned long long)m->body_bytes, reader_left(r));
    return reader_bytes(r, m->body_bytes, &m->body, "a message's body");
}

/* The RecordBatch table of a message, which dictionary batches contain as well.  Vectors are
 * positions in the flatbuffer. */
struct arrow_record {
    struct arrow_message *message;
    uint64_t rows, nodes, num_nodes, buffers, num_buffers;
    uint64_t variadic_counts, num_variadic_counts; /* variadicBufferCounts */
    enum codec codec;
};

static enum status read_record_batch(const struct arrow *a, struct arrow_message *m, uint64_t table,
                                     struct arrow_record *r)
{
    struct flatbuffer *f = &m->flat;
    uint64_t compression = flatbuffer_target(f, table, 3);
    *r = (struct arrow_record){
        .message = m, .rows = flatbuffer_scalar(f, table, 0, 8), .codec = CODEC_NONE};
    r->num_nodes = flatbuffer_vector(f, table, 1, 16, &r->nodes);
    r->num_buffers = flatbuffer_vector(f, table, 2, 16, &r->buffers);
    r->num_variadic_counts = flatbuffer_vector(f, table, 4, 8, &r->variadic_counts);
    if (f->bad || !table) FAIL(DATA, "%s: corrupt record batch", a->path);
    if (!compression) return STATUS_OK;
    uint64_t codec = flatbuffer_scalar(f, compression, 0, 1);
    if (codec > COMPRESSION_ZSTD || flatbuffer_scalar(f, compression, 1, 1))
        FAIL(UNSUPPORTED, "%s: record batch compressed with unknown codec %llu", a->path,
             (unsigned long long)codec);
    r->codec = codec == COMPRESSION_ZSTD ? CODEC_ZSTD : CODEC_LZ4_FRAME;
    return STATUS_OK;
}

/* Buffer `index` of a batch; it must be inside the message body. */
static enum status read_buffer(const struct arrow *a, const struct arrow_record *r, uint64_t index,
                               struct byte_span *out)
{
    struct arrow_message *m = r->message;
    if (index >= r->num_buffers) FAIL(DATA, "%s: record batch has too few buffers", a->path);
    uint64_t at = flatbuffer_read(&m->flat, r->buffers + 16 * index, 8),
             len = flatbuffer_read(&m->flat, r->buffers + 16 * index + 8, 8);
    if (at > m->body_bytes || len > m->body_bytes - at)
        FAIL(DATA, "%s: buffer of %llu bytes at offset %llu exceeds the message body of %llu bytes",
             a->path, (unsigned long long)len, (unsigned long long)at,
             (unsigned long long)m->body_bytes);
    *out = (struct byte_span){m->body + at, len};
    return STATUS_OK;
}

/* The number of variadic buffers of the first `view` view columns. */
static enum status count_variadic(const struct arrow *a, const struct arrow_record *r, size_t view,
                                  uint64_t *count)
{
    *count = 0;
    if (view > r->num_variadic_counts)
        FAIL(DATA, "%s: record batch has too few variadic buffer counts", a->path);
    for (size_t i = 0; i < view; i++) {
        uint64_t here = flatbuffer_read(&r->message->flat, r->variadic_counts + 8 * i, 8);
        if (here > r->num_buffers) FAIL(DATA, "%s: record batch has too few buffers", a->path);
        *count += here;
    }
    return STATUS_OK;
}

static enum status read_array(const struct arrow *a, const struct arrow_record *r,
                              const struct arrow_level *l, struct arrow_batch *b,
                              struct arrow_array *out)
{
    struct flatbuffer *f = &r->message->flat;
    uint64_t shift, end, count = l->num_buffers;
    if (l->node >= r->num_nodes) FAIL(DATA, "%s: record batch has too few field nodes", a->path);
    out->length = flatbuffer_read(f, r->nodes + 16 * l->node, 8);
    out->nulls = flatbuffer_read(f, r->nodes + 16 * l->node + 8, 8);
    TRY(count_variadic(a, r, l->variadic, &shift));
    uint64_t first = l->buffer + shift;
    if (r->message->version < METADATA_V5) first += l->unions;
    bool no_offsets = l->type == ARROW_INT || arrow_is_view(l->type);
    if (count > 0) TRY(read_buffer(a, r, first, &out->validity));
    if (count > 1) TRY(read_buffer(a, r, first + 1, no_offsets ? &out->data : &out->offsets));
    if (count > 2) TRY(read_buffer(a, r, first + 2, &out->data));
    if (!arrow_is_view(l->type)) return STATUS_OK;
    TRY(count_variadic(a, r, l->variadic + 1, &end));
    b->num_variadic = end - shift;
    b->variadic = heap_grow(NULL, b->num_variadic + 1, sizeof *b->variadic);
    for (size_t i = 0; i < b->num_variadic; i++)
        TRY(read_buffer(a, r, first + count + i, &b->variadic[i]));
    return STATUS_OK;
}

/* Appends a new batch to a list. */
static struct arrow_batch *add_batch(struct arrow_batch ***list, size_t *count, size_t *capacity,
                                     int arrays)
{
    if (*count == *capacity) {
        *capacity = 2 * *capacity + 16;
        *list = heap_grow(*list, *capacity, sizeof **list);
    }
    struct arrow_batch *b = heap(sizeof *b + (size_t)arrays * sizeof(struct arrow_array));
    (*list)[(*count)++] = b;
    return b;
}

static enum status read_row_batch(struct arrow *a, struct arrow_message *m)
{
    struct arrow_record r;
    TRY(read_record_batch(a, m, m->header, &r));
    if (r.rows > INT64_MAX - a->num_rows) FAIL(DATA, "%s: corrupt record batch", a->path);
    struct arrow_batch *b = add_batch(&a->batches, &a->num_batches, &a->capacity, a->num_levels);
    b->first_row = a->num_rows, b->num_rows = r.rows;
    b->codec = r.codec;
    b->dictionary_begin = a->dictionary_begin, b->dictionary_end = a->num_dictionary_batches;
    for (int i = 0; i < a->num_levels; i++) TRY(read_array(a, &r, &a->levels[i], b, &b->arrays[i]));
    if (b->arrays[0].length != r.rows)
        FAIL(DATA, "%s: record batch has %llu rows, but its column has %llu", a->path,
             (unsigned long long)r.rows, (unsigned long long)b->arrays[0].length);
    a->num_rows += r.rows;
    return STATUS_OK;
}

enum status arrow_decompress(const struct arrow *a, enum codec codec, struct byte_span *buffer,
                             struct text *storage)
{
    uint64_t len = 0;
    if (codec == CODEC_NONE || !buffer->len) return STATUS_OK;
    struct reader r = {buffer->data, buffer->data + buffer->len, a->path};
    TRY(reader_u64(&r, &len, "the uncompressed length of a buffer"));
    if (len == UINT64_MAX) { /* stored as is: compressing it did not help */
        *buffer = (struct byte_span){r.at, reader_left(&r)};
        return STATUS_OK;
    }
    if (len > ARROW_MAX_BUFFER_BYTES)
        FAIL(UNSUPPORTED, "%s: buffer of %llu bytes: the limit is %d", a->path,
             (unsigned long long)len, ARROW_MAX_BUFFER_BYTES);
    TRY(codec_check_size(codec, r, len));
    text_clear(storage);
    text_reserve(storage, len);
    TRY(codec_decompress(codec, r, (unsigned char *)storage->data, len));
    *buffer = (struct byte_span){(unsigned char *)storage->data, len};
    return STATUS_OK;
}

/* Decompresses a buffer of a dictionary into memory that lives as long as `a`. */
static enum status keep_decompressed(struct arrow *a, enum codec codec, struct byte_span *buffer)
{
    if (codec == CODEC_NONE || !buffer->len) return STATUS_OK;
    a->buffers = heap_grow(a->buffers, a->num_buffers + 1, sizeof *a->buffers);
    struct text *storage = &a->buffers[a->num_buffers++];
    *storage = (struct text){0};
    TRY(arrow_decompress(a, codec, buffer, storage));
    a->buffer_bytes += storage->capacity;
    if (a->buffer_bytes > ARROW_MAX_BUFFER_BYTES)
        FAIL(UNSUPPORTED, "%s: dictionaries exceed %d bytes", a->path, ARROW_MAX_BUFFER_BYTES);
    return STATUS_OK;
}

/* If this is a batch of the column's dictionary, it replaces that dictionary, or extends it if it
 * is a delta. */
static enum status read_dictionary_batch(struct arrow *a, struct arrow_message *m)
{
    struct flatbuffer *f = &m->flat;
    struct arrow_record r;
    if (!a->is_dictionary_encoded ||
        (int64_t)flatbuffer_scalar(f, m->header, 0, 8) != a->dictionary_id)
        return STATUS_OK;
    if (!a->is_text && !a->is_integer) return STATUS_OK;
    TRY(read_record_batch(a, m, flatbuffer_target(f, m->header, 1), &r));
    if (!flatbuffer_scalar(f, m->header, 2, 1)) a->dictionary_begin = a->num_dictionary_batches;
    struct arrow_batch *b =
        add_batch(&a->dictionary_batches, &a->num_dictionary_batches, &a->dictionary_capacity, 1);
    struct arrow_array *array = &b->arrays[0];
    TRY(read_array(a, &r, &a->dictionary_values, b, array));
    b->num_rows = array->length;
    TRY(keep_decompressed(a, r.codec, &array->validity));
    TRY(keep_decompressed(a, r.codec, &array->offsets));
    TRY(keep_decompressed(a, r.codec, &array->data));
    for (size_t i = 0; i < b->num_variadic; i++)
        TRY(keep_decompressed(a, r.codec, &b->variadic[i]));
    return STATUS_OK;
}

static enum status read_message_body(struct arrow *a, struct arrow_message *m)
{
    if (m->type == HEADER_DICTIONARY) return read_dictionary_batch(a, m);
    if (m->type == HEADER_BATCH) return read_row_batch(a, m);
    return STATUS_OK;
}

/* Reads the messages that a vector of the footer lists; a Block struct has 24 bytes. */
static enum status read_blocks(struct arrow *a, struct reader file, struct flatbuffer *footer,
                               uint64_t root, unsigned slot)
{
    enum { BLOCK = 24 };
    struct arrow_message m;
    uint64_t first, count = flatbuffer_vector(footer, root, slot, BLOCK, &first);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = flatbuffer_read(footer, first + BLOCK * i, 8);
        struct reader r = file;
        if (at > reader_left(&r))
            FAIL(DATA, "%s: record batch at byte %llu, beyond the %zu bytes of the file", a->path,
                 (unsigned long long)at, reader_left(&r));
        r.at += at;
        TRY(read_message(&r, &m));
        TRY(read_message_body(a, &m));
    }
    return STATUS_OK;
}

/* The IPC file format: "ARROW1", messages, and a footer with their offsets. */
static enum status parse_file(struct arrow *a, struct reader file, const char *column)
{
    enum { HEAD = 8, TAIL = 10, SCHEMA = 1, DICTIONARIES, BATCHES };
    uint32_t len = 0;
    if (reader_left(&file) < HEAD + TAIL || memcmp(file.end - 6, "ARROW1", 6) != 0)
        FAIL(DATA, "%s: truncated Arrow file: it does not end with ARROW1", a->path);
    struct reader tail = {file.end - TAIL, file.end, a->path};
    TRY(reader_u32(&tail, &len, "the footer's length"));
    if (len > reader_left(&file) - HEAD - TAIL)
        FAIL(DATA, "%s: the footer length %u exceeds the file", a->path, len);
    file.end -= TAIL + len;
    struct flatbuffer footer = {file.end, len, false};
    uint64_t root = flatbuffer_read(&footer, 0, 4),
             schema = flatbuffer_target(&footer, root, SCHEMA);
    if (footer.bad || !schema) FAIL(DATA, "%s: corrupt footer", a->path);
    TRY(arrow_schema_read(a, &footer, schema, column));
    TRY(read_blocks(a, file, &footer, root, DICTIONARIES));
    TRY(read_blocks(a, file, &footer, root, BATCHES));
    if (footer.bad) FAIL(DATA, "%s: corrupt footer", a->path);
    return STATUS_OK;
}

enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column)
{
    struct reader r = {bytes, bytes + size, a->path};
    struct arrow_message m;
    if (size >= 6 && !memcmp(bytes, "ARROW1", 6)) return parse_file(a, r, column);
    TRY(read_message(&r, &m));
    if (m.type != HEADER_SCHEMA)
        FAIL(DATA, "%s: not an Arrow file: the first message must be a schema", a->path);
    TRY(arrow_schema_read(a, &m.flat, m.header, column));
    do {
        TRY(read_message(&r, &m));
        TRY(read_message_body(a, &m));
    } while (m.type);
    return STATUS_OK;
}

enum status arrow_open(struct arrow *a, const char *path, const char *column)
{
    *a = (struct arrow){.path = heap_strdup(path)};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&a->map, path));
    TRY_OUT(file_map_check_after(&a->map, arrow_parse(a, a->map.data, a->map.size, column)));
out:
    if (st) arrow_close(a);
    return st;
}

static void release_batches(struct arrow_batch **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i]->variadic);
        free(list[i]);
    }
    free(list);
}

void arrow_close(struct arrow *a)
{
    release_batches(a->batches, a->num_batches);
    release_batches(a->dictionary_batches, a->num_dictionary_batches);
    for (size_t i = 0; i < a->num_buffers; i++) text_release(&a->buffers[i]);
    free(a->buffers);
    text_release(&a->columns);
    file_map_close(&a->map);
    free(a->path);
    *a = (struct arrow){0};
}

const struct arrow_batch *arrow_find_batch(const struct arrow *a, uint64_t row)
{
    size_t low = 0, high = a->num_batches;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(a->batches[middle]->first_row <= row ? &low : &high) = middle;
    }
    if (row >= a->num_rows) BUG("row out of range");
    return a->batches[low];
}

/* The decompressed length that a buffer claims. */
static uint64_t decompressed_length(const struct arrow_batch *b, const struct byte_span *buffer)
{
    uint64_t len = 0;
    if (b->codec == CODEC_NONE || buffer->len < 8) return buffer->len;
    struct reader r = {buffer->data, buffer->data + buffer->len, ""};
    reader_u64(&r, &len, "a length");
    return len > ARROW_MAX_BUFFER_BYTES ? buffer->len : len;
}

uint64_t arrow_range_end(const struct arrow *a, uint64_t row, uint64_t *bytes)
{
    enum { PARTS = 8 };
    const struct arrow_batch *b = arrow_find_batch(a, row);
    uint64_t left = b->first_row + b->num_rows - row, all = 0;
    for (int i = 0; i < a->num_levels; i++)
        all += decompressed_length(b, &b->arrays[i].offsets) +
               decompressed_length(b, &b->arrays[i].data);
    for (size_t i = 0; i < b->num_variadic; i++) all += decompressed_length(b, &b->variadic[i]);
    double each = (double)all / (double)b->num_rows, rows = each > 0 ? (double)*bytes / each : 0;
    if (b->codec != CODEC_NONE && rows < (double)b->num_rows / PARTS)
        rows = (double)b->num_rows / PARTS;
    if (each > 0 && rows < (double)left) left = (uint64_t)rows + 1;
    *bytes = (uint64_t)(each * (double)left);
    return row + left;
}
