// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow.h"

#include "formats/arrow_schema.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY, HEADER_BATCH };
enum { ZSTD_BODY = 1 };

/* A message: its flatbuffer, and the body behind it. */
struct message {
    struct flat flat;
    uint64_t header;
    int type; /* 0: the end */
    const unsigned char *body;
    uint64_t body_bytes;
};

static enum status next_message(struct reader *r, struct message *m)
{
    uint32_t len = 0;
    const unsigned char *bytes;
    *m = (struct message){0};
    TRY(reader_u32(r, &len, "a message"));
    if (len == UINT32_MAX) TRY(reader_u32(r, &len, "a message")); /* files before 0.15 lack it */
    if (!len) return STATUS_OK;
    TRY(reader_bytes(r, len, &bytes, "a message"));
    m->flat = (struct flat){bytes, len, false};
    uint64_t root = flat_number(&m->flat, 0, 4);
    m->type = (int)flat_scalar(&m->flat, root, 1, 1);
    m->header = flat_pointed(&m->flat, root, 2);
    m->body_bytes = flat_scalar(&m->flat, root, 3, 8);
    if (m->flat.bad || !m->type || !m->header) FAIL(DATA, "%s: a damaged message", r->name);
    if (m->body_bytes > reader_left(r))
        FAIL(DATA, "%s: a message of %llu bytes where %zu are left", r->name,
             (unsigned long long)m->body_bytes, reader_left(r));
    return reader_bytes(r, m->body_bytes, &m->body, "a message's body");
}

/* A batch of rows, or of a dictionary's values, as its message tells of it. */
struct record {
    struct message *message;
    uint64_t rows, nodes, num_nodes, buffers, num_buffers, views, num_views;
    enum codec codec;
};

static enum status read_record(const struct arrow *a, struct message *m, uint64_t table,
                               struct record *r)
{
    struct flat *f = &m->flat;
    uint64_t packing = flat_pointed(f, table, 3);
    *r = (struct record){.message = m, .rows = flat_scalar(f, table, 0, 8), .codec = CODEC_NONE};
    r->num_nodes = flat_items(f, table, 1, 16, &r->nodes);
    r->num_buffers = flat_items(f, table, 2, 16, &r->buffers);
    r->num_views = flat_items(f, table, 4, 8, &r->views);
    if (f->bad || !table) FAIL(DATA, "%s: a damaged batch of rows", a->path);
    if (!packing) return STATUS_OK;
    uint64_t codec = flat_scalar(f, packing, 0, 1);
    if (codec > ZSTD_BODY || flat_scalar(f, packing, 1, 1))
        FAIL(UNSUPPORTED, "%s: batches packed by codec %llu", a->path, (unsigned long long)codec);
    r->codec = codec == ZSTD_BODY ? CODEC_ZSTD : CODEC_LZ4_FRAME;
    return STATUS_OK;
}

/* Buffer `number_of` of a batch, within its body. */
static enum status take_buffer(const struct arrow *a, const struct record *r, uint64_t number_of,
                               struct parquet_bytes *out)
{
    struct message *m = r->message;
    if (number_of >= r->num_buffers) FAIL(DATA, "%s: a batch of too few buffers", a->path);
    uint64_t at = flat_number(&m->flat, r->buffers + 16 * number_of, 8),
             len = flat_number(&m->flat, r->buffers + 16 * number_of + 8, 8);
    if (at > m->body_bytes || len > m->body_bytes - at)
        FAIL(DATA, "%s: a buffer of %llu bytes at %llu of %llu", a->path, (unsigned long long)len,
             (unsigned long long)at, (unsigned long long)m->body_bytes);
    *out = (struct parquet_bytes){m->body + at, len};
    return STATUS_OK;
}

/* How many buffers of views come before `view`. */
static enum status count_views(const struct arrow *a, const struct record *r, size_t view,
                               uint64_t *count)
{
    *count = 0;
    if (view > r->num_views) FAIL(DATA, "%s: a batch of too few views", a->path);
    for (size_t i = 0; i < view; i++) {
        uint64_t here = flat_number(&r->message->flat, r->views + 8 * i, 8);
        if (here > r->num_buffers) FAIL(DATA, "%s: a batch of too few buffers", a->path);
        *count += here;
    }
    return STATUS_OK;
}

static enum status take_array(const struct arrow *a, const struct record *r,
                              const struct arrow_level *l, struct arrow_batch *b,
                              struct arrow_array *out)
{
    struct flat *f = &r->message->flat;
    uint64_t shift, end, count = arrow_schema_buffers(l->type);
    if (l->node >= r->num_nodes) FAIL(DATA, "%s: a batch of too few arrays", a->path);
    out->length = flat_number(f, r->nodes + 16 * l->node, 8);
    out->nulls = flat_number(f, r->nodes + 16 * l->node + 8, 8);
    TRY(count_views(a, r, l->views, &shift));
    uint64_t first = l->buffer + shift;
    bool no_offsets = l->type == ARROW_INT || arrow_is_view(l->type);
    if (count > 0) TRY(take_buffer(a, r, first, &out->validity));
    if (count > 1) TRY(take_buffer(a, r, first + 1, no_offsets ? &out->data : &out->offsets));
    if (count > 2) TRY(take_buffer(a, r, first + 2, &out->data));
    if (!arrow_is_view(l->type)) return STATUS_OK;
    TRY(count_views(a, r, l->views + 1, &end));
    b->num_more = end - shift;
    b->more = heap_grow(NULL, b->num_more + 1, sizeof *b->more);
    for (size_t i = 0; i < b->num_more; i++) TRY(take_buffer(a, r, first + count + i, &b->more[i]));
    return STATUS_OK;
}

/* A new batch at the end of a list. */
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

static enum status read_batch(struct arrow *a, struct message *m)
{
    struct record r;
    TRY(read_record(a, m, m->header, &r));
    if (r.rows > INT64_MAX - a->num_rows) FAIL(DATA, "%s: a damaged batch of rows", a->path);
    struct arrow_batch *b = add_batch(&a->batches, &a->num_batches, &a->capacity, a->num_levels);
    b->first_row = a->num_rows, b->num_rows = r.rows;
    b->codec = r.codec;
    b->first_values = a->first_values, b->end_values = a->num_value_batches;
    for (int i = 0; i < a->num_levels; i++) TRY(take_array(a, &r, &a->levels[i], b, &b->arrays[i]));
    if (b->arrays[0].length != r.rows)
        FAIL(DATA, "%s: a batch of %llu rows whose column has %llu", a->path,
             (unsigned long long)r.rows, (unsigned long long)b->arrays[0].length);
    a->num_rows += r.rows;
    return STATUS_OK;
}

enum status arrow_unpack(const struct arrow *a, enum codec codec, struct parquet_bytes *buffer,
                         struct text *room)
{
    uint64_t len = 0;
    if (codec == CODEC_NONE || !buffer->len) return STATUS_OK;
    struct reader r = {buffer->data, buffer->data + buffer->len, a->path};
    TRY(reader_u64(&r, &len, "the length of a buffer"));
    size_t packed = reader_left(&r);
    if (len == UINT64_MAX) { /* as it is: packing would have made it longer */
        *buffer = (struct parquet_bytes){r.at, packed};
        return STATUS_OK;
    }
    if (len > ARROW_MOST_BYTES)
        FAIL(UNSUPPORTED, "%s: a packed buffer of %llu bytes; %d at most are read", a->path,
             (unsigned long long)len, ARROW_MOST_BYTES);
    TRY(codec_check(codec, r.at, packed, len, a->path));
    text_clear(room);
    text_reserve(room, len);
    TRY(codec_unpack(codec, r.at, packed, (unsigned char *)room->data, len, a->path));
    *buffer = (struct parquet_bytes){(unsigned char *)room->data, len};
    return STATUS_OK;
}

/* A buffer of values, unpacked into room of its own. */
static enum status keep_unpacked(struct arrow *a, enum codec codec, struct parquet_bytes *buffer)
{
    if (codec == CODEC_NONE || !buffer->len) return STATUS_OK;
    a->rooms = heap_grow(a->rooms, a->num_rooms + 1, sizeof *a->rooms);
    struct text *room = &a->rooms[a->num_rooms++];
    *room = (struct text){0};
    TRY(arrow_unpack(a, codec, buffer, room));
    a->unpacked += room->capacity;
    if (a->unpacked > ARROW_MOST_BYTES)
        FAIL(UNSUPPORTED, "%s: dictionaries of more than %d bytes", a->path, ARROW_MOST_BYTES);
    return STATUS_OK;
}

/* Values of the column's dictionary: they replace those before, or come behind them. */
static enum status read_values(struct arrow *a, struct message *m)
{
    struct flat *f = &m->flat;
    struct record r;
    if (!a->is_coded || (int64_t)flat_scalar(f, m->header, 0, 8) != a->dictionary) return STATUS_OK;
    if (!a->is_text && !a->is_integer) return STATUS_OK;
    TRY(read_record(a, m, flat_pointed(f, m->header, 1), &r));
    if (!flat_scalar(f, m->header, 2, 1)) a->first_values = a->num_value_batches;
    struct arrow_batch *b =
        add_batch(&a->value_batches, &a->num_value_batches, &a->values_capacity, 1);
    struct arrow_array *array = &b->arrays[0];
    TRY(take_array(a, &r, &a->values, b, array));
    b->num_rows = array->length;
    TRY(keep_unpacked(a, r.codec, &array->validity));
    TRY(keep_unpacked(a, r.codec, &array->offsets));
    TRY(keep_unpacked(a, r.codec, &array->data));
    for (size_t i = 0; i < b->num_more; i++) TRY(keep_unpacked(a, r.codec, &b->more[i]));
    return STATUS_OK;
}

static enum status take_message(struct arrow *a, struct message *m)
{
    if (m->type == HEADER_DICTIONARY) return read_values(a, m);
    if (m->type == HEADER_BATCH) return read_batch(a, m);
    return STATUS_OK;
}

/* The messages that a list of the footer tells of: where each begins, in 24 bytes. */
static enum status read_blocks(struct arrow *a, struct reader file, struct flat *footer,
                               uint64_t root, unsigned slot)
{
    enum { BLOCK = 24 };
    struct message m;
    uint64_t first, count = flat_items(footer, root, slot, BLOCK, &first);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = flat_number(footer, first + BLOCK * i, 8);
        struct reader r = file;
        if (at > reader_left(&r))
            FAIL(DATA, "%s: a batch at byte %llu of %zu", a->path, (unsigned long long)at,
                 reader_left(&r));
        r.at += at;
        TRY(next_message(&r, &m));
        TRY(take_message(a, &m));
    }
    return STATUS_OK;
}

/* The file format: "ARROW1", messages, and a footer that says where they are. */
static enum status parse_file(struct arrow *a, struct reader file, const char *column)
{
    enum { HEAD = 8, TAIL = 10, SCHEMA = 1, DICTIONARIES, BATCHES };
    uint32_t len = 0;
    if (reader_left(&file) < HEAD + TAIL || memcmp(file.end - 6, "ARROW1", 6) != 0)
        FAIL(DATA, "%s: the file is cut off", a->path);
    struct reader tail = {file.end - TAIL, file.end, a->path};
    TRY(reader_u32(&tail, &len, "the footer's length"));
    if (len > reader_left(&file) - HEAD - TAIL)
        FAIL(DATA, "%s: a footer of %u bytes", a->path, len);
    file.end -= TAIL + len;
    struct flat footer = {file.end, len, false};
    uint64_t root = flat_number(&footer, 0, 4), schema = flat_pointed(&footer, root, SCHEMA);
    if (footer.bad || !schema) FAIL(DATA, "%s: the footer is damaged", a->path);
    TRY(arrow_schema_read(a, &footer, schema, column));
    TRY(read_blocks(a, file, &footer, root, DICTIONARIES));
    TRY(read_blocks(a, file, &footer, root, BATCHES));
    if (footer.bad) FAIL(DATA, "%s: the footer is damaged", a->path);
    return STATUS_OK;
}

enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column)
{
    struct reader r = {bytes, bytes + size, a->path};
    struct message m;
    if (size >= 6 && !memcmp(bytes, "ARROW1", 6)) return parse_file(a, r, column);
    TRY(next_message(&r, &m));
    if (m.type != HEADER_SCHEMA) FAIL(DATA, "%s: no Arrow file: it begins with no schema", a->path);
    TRY(arrow_schema_read(a, &m.flat, m.header, column));
    do {
        TRY(next_message(&r, &m));
        TRY(take_message(a, &m));
    } while (m.type);
    return STATUS_OK;
}

enum status arrow_open(struct arrow *a, const char *path, const char *column)
{
    *a = (struct arrow){.path = heap_string(path, strlen(path))};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&a->map, path));
    TRY_OUT(arrow_parse(a, a->map.data, a->map.size, column));
out:
    if (st) arrow_close(a);
    return st;
}

static void release_batches(struct arrow_batch **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i]->more);
        free(list[i]);
    }
    free(list);
}

void arrow_close(struct arrow *a)
{
    release_batches(a->batches, a->num_batches);
    release_batches(a->value_batches, a->num_value_batches);
    for (size_t i = 0; i < a->num_rooms; i++) text_release(&a->rooms[i]);
    free(a->rooms);
    text_release(&a->columns);
    file_map_close(&a->map);
    free(a->path);
    *a = (struct arrow){0};
}

const struct arrow_batch *arrow_batch_of(const struct arrow *a, uint64_t row)
{
    size_t low = 0, high = a->num_batches;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(a->batches[middle]->first_row <= row ? &low : &high) = middle;
    }
    if (row >= a->num_rows) BUG("there is no such row");
    return a->batches[low];
}

/* Bytes of a buffer when it is unpacked, as it says. */
static uint64_t length_of(const struct arrow_batch *b, const struct parquet_bytes *buffer)
{
    uint64_t len = 0;
    if (b->codec == CODEC_NONE || buffer->len < 8) return buffer->len;
    struct reader r = {buffer->data, buffer->data + buffer->len, ""};
    reader_u64(&r, &len, "a length");
    return len > ARROW_MOST_BYTES ? buffer->len : len;
}

uint64_t arrow_ahead(const struct arrow *a, uint64_t row, uint64_t *bytes)
{
    enum { PARTS = 8 };
    const struct arrow_batch *b = arrow_batch_of(a, row);
    uint64_t left = b->first_row + b->num_rows - row, all = 0;
    for (int i = 0; i < a->num_levels; i++)
        all += length_of(b, &b->arrays[i].offsets) + length_of(b, &b->arrays[i].data);
    for (size_t i = 0; i < b->num_more; i++) all += length_of(b, &b->more[i]);
    double each = (double)all / (double)b->num_rows, rows = each > 0 ? (double)*bytes / each : 0;
    if (b->codec != CODEC_NONE && rows < (double)b->num_rows / PARTS)
        rows = (double)b->num_rows / PARTS;
    if (each > 0 && rows < (double)left) left = (uint64_t)rows + 1;
    *bytes = (uint64_t)(each * (double)left);
    return row + left;
}
