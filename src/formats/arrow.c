// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow.h"

#include "formats/column_path.h"

#include <stdlib.h>
#include <string.h>

enum { INT = 2, BINARY = 4, UTF8, LIST = 12, STRUCT, MAP = 17, LARGE_BINARY = 19, LARGE_UTF8 };
enum { LARGE_LIST = 21, TYPES };
enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY, HEADER_BATCH };
enum { MOST_FIELDS = 1 << 16 };

/* Buffers of an array of each type; 0: its layout is not known here.  A null array, type 1, has
 * none, either. */
static const unsigned char buffers_of[TYPES + 1] = {
    [INT] = 2, [3] = 2,  [BINARY] = 3,       [UTF8] = 3,       [6] = 2,         [7] = 2,  [8] = 2,
    [9] = 2,   [10] = 2, [11] = 2,           [LIST] = 2,       [STRUCT] = 1,    [15] = 2, [16] = 1,
    [MAP] = 2, [18] = 2, [LARGE_BINARY] = 3, [LARGE_UTF8] = 3, [LARGE_LIST] = 2};

/* A flatbuffer: whatever lies beyond its end is 0, and `bad` is set. */
struct flat {
    const unsigned char *data;
    uint64_t size;
    bool bad;
};

static uint64_t number(struct flat *f, uint64_t at, unsigned bytes)
{
    uint64_t value = 0;
    if (at > f->size || bytes > f->size - at) {
        f->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)f->data[at + i] << (8 * i);
    return value;
}

/* Where a table's field lies; 0: it has none. */
static uint64_t field_at(struct flat *f, uint64_t table, unsigned slot)
{
    uint64_t vtable = table - (uint64_t)(int64_t)(int32_t)(uint32_t)number(f, table, 4);
    if (4 + 2 * slot + 2 > number(f, vtable, 2)) return 0;
    uint64_t offset = number(f, vtable + 4 + 2 * slot, 2);
    return offset ? table + offset : 0;
}

static uint64_t scalar(struct flat *f, uint64_t table, unsigned slot, unsigned bytes)
{
    uint64_t at = field_at(f, table, slot);
    return at ? number(f, at, bytes) : 0;
}

/* Where the table, vector or string that a field points to lies; 0: it has none. */
static uint64_t pointed(struct flat *f, uint64_t table, unsigned slot)
{
    uint64_t at = field_at(f, table, slot);
    return at ? at + number(f, at, 4) : 0;
}

/* Items of `each` bytes that are all there; *first: where. */
static uint64_t items(struct flat *f, uint64_t table, unsigned slot, unsigned each, uint64_t *first)
{
    uint64_t vector = pointed(f, table, slot), count = vector ? number(f, vector, 4) : 0;
    *first = vector + 4;
    if (f->bad || (count && count > (f->size - *first) / each)) {
        f->bad = true;
        return 0;
    }
    return count;
}

/* The schema's fields on the way to the column. */
struct schema {
    struct flat *flat;
    size_t nodes, buffers, fields; /* counted so far */
    struct arrow_level levels[ARROW_DEEP];
    struct arrow *found; /* gets the levels */
};

static bool is_list(int type) { return type == LIST || type == LARGE_LIST || type == MAP; }

static void take_column(struct schema *s, int depth)
{
    struct arrow *a = s->found;
    const struct arrow_level *last = &s->levels[depth - 1];
    if (a->num_levels) return;
    memcpy(a->levels, s->levels, sizeof a->levels);
    a->num_levels = depth;
    for (int i = 0; i < depth; i++) a->num_lists += is_list(s->levels[i].type);
    a->is_text = last->type == BINARY || last->type == UTF8 || last->type == LARGE_BINARY ||
                 last->type == LARGE_UTF8;
    a->is_integer = last->type == INT && last->bits;
    a->is_u8 = a->is_integer && last->bits == 8 && !last->is_signed;
}

static enum status read_level(struct schema *s, uint64_t field, struct arrow_level *l)
{
    struct flat *f = s->flat;
    const char *path = s->found->path;
    uint64_t type = pointed(f, field, 3);
    l->type = (int)scalar(f, field, 2, 1);
    if (field_at(f, field, 4)) { /* its indices: those of a column that is wanted are refused */
        l->type = INT, l->bits = 0;
    } else if (l->type == INT && type) {
        uint64_t bits = scalar(f, type, 0, 4);
        if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
            FAIL(DATA, "%s: whole numbers of %llu bits", path, (unsigned long long)bits);
        l->bits = (int)bits;
        l->is_signed = scalar(f, type, 1, 1) != 0;
    }
    if (f->bad) FAIL(DATA, "%s: the schema is damaged", path);
    if (++s->fields > MOST_FIELDS) FAIL(DATA, "%s: more than %d fields", path, MOST_FIELDS);
    if (l->type != 1 && (l->type > TYPES || !buffers_of[l->type]))
        FAIL(UNSUPPORTED, "%s: a field of type %d (views, unions and runs are not read)", path,
             l->type);
    l->node = s->nodes++, l->buffer = s->buffers;
    s->buffers += buffers_of[l->type];
    return STATUS_OK;
}

/* Is the field of the name that `rest` begins with?  Then *after is what follows it. */
static bool is_named(struct flat *f, uint64_t field, const char *rest, const char **after)
{
    uint64_t at, bytes = items(f, field, 0, 1, &at);
    size_t len = column_path_name(rest, after);
    return len && bytes == len && !memcmp(f->data + at, rest, len);
}

/* A field and those below it.  `rest`: the names still to be met; NULL: it is not on the way. */
static enum status read_field(struct schema *s, uint64_t field, int depth, const char *rest)
{
    struct flat *f = s->flat;
    uint64_t first;
    if (depth == ARROW_DEEP) FAIL(UNSUPPORTED, "%s: fields nested too deep", s->found->path);
    struct arrow_level *level = &s->levels[depth];
    *level = (struct arrow_level){0};
    TRY(read_level(s, field, level));
    bool coded = field_at(f, field, 4) != 0, is_struct = level->type == STRUCT;
    uint64_t count = coded ? 0 : items(f, field, 5, 4, &first);
    bool passes = is_list(level->type);
    if (passes && count != 1)
        FAIL(DATA, "%s: a list of %llu kinds", s->found->path, (unsigned long long)count);
    if (rest && !rest[0] && !is_struct && !passes) take_column(s, depth + 1);
    if (!is_struct && !passes) rest = NULL;
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, child = at + number(f, at, 4);
        const char *after, *below = NULL;
        if (rest && is_named(f, child, rest, &after))
            below = after;
        else if (passes)
            below = rest;
        TRY(read_field(s, child, depth + 1, below));
    }
    return STATUS_OK;
}

static enum status read_schema(struct arrow *a, struct flat *f, uint64_t header, const char *column)
{
    struct schema s = {.flat = f, .found = a};
    struct text there = {0};
    uint64_t first, count = items(f, header, 1, 4, &first);
    if (scalar(f, header, 0, 2)) FAIL(UNSUPPORTED, "%s: big-endian numbers", a->path);
    enum status st = STATUS_OK;
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, field = at + number(f, at, 4), name, len;
        const char *after = NULL;
        bool named = is_named(f, field, column, &after);
        TRY_OUT(read_field(&s, field, 0, named ? after : NULL));
        len = items(f, field, 0, 1, &name);
        if (there.len < 1000)
            text_addf(&there, "%s%.*s", i ? ", " : "", (int)(len < 100 ? len : 100),
                      (const char *)f->data + name);
    }
    if (f->bad) FAIL_OUT(DATA, "%s: the schema is damaged", a->path);
    if (!a->num_levels)
        FAIL_OUT(CONFIG, "%s: there is no column \"%s\"; there are %s", a->path, column,
                 there.data ? there.data : "none");
out:
    text_release(&there);
    return st;
}

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
    uint64_t root = number(&m->flat, 0, 4);
    m->type = (int)scalar(&m->flat, root, 1, 1);
    m->header = pointed(&m->flat, root, 2);
    m->body_bytes = scalar(&m->flat, root, 3, 8);
    if (m->flat.bad || !m->type || !m->header) FAIL(DATA, "%s: a damaged message", r->name);
    if (m->body_bytes > reader_left(r))
        FAIL(DATA, "%s: a message of %llu bytes where %zu are left", r->name,
             (unsigned long long)m->body_bytes, reader_left(r));
    return reader_bytes(r, m->body_bytes, &m->body, "a message's body");
}

/* Buffer `number_of` of a batch, within its body. */
static enum status take_buffer(const struct arrow *a, struct message *m, uint64_t buffers,
                               uint64_t count, size_t number_of, struct parquet_bytes *out)
{
    if (number_of >= count) FAIL(DATA, "%s: a batch of too few buffers", a->path);
    uint64_t at = number(&m->flat, buffers + 16 * number_of, 8),
             len = number(&m->flat, buffers + 16 * number_of + 8, 8);
    if (at > m->body_bytes || len > m->body_bytes - at)
        FAIL(DATA, "%s: a buffer of %llu bytes at %llu of %llu", a->path, (unsigned long long)len,
             (unsigned long long)at, (unsigned long long)m->body_bytes);
    *out = (struct parquet_bytes){m->body + at, len};
    return STATUS_OK;
}

static enum status read_batch(struct arrow *a, struct message *m)
{
    uint64_t nodes, buffers, rows = scalar(&m->flat, m->header, 0, 8);
    uint64_t num_nodes = items(&m->flat, m->header, 1, 16, &nodes),
             num_buffers = items(&m->flat, m->header, 2, 16, &buffers);
    if (m->flat.bad || rows > INT64_MAX - a->num_rows)
        FAIL(DATA, "%s: a damaged batch of rows", a->path);
    if (pointed(&m->flat, m->header, 3))
        FAIL(UNSUPPORTED, "%s: its batches are compressed; plain ones are read", a->path);
    if (a->num_batches == a->capacity) {
        a->capacity = 2 * a->capacity + 16;
        a->batches = heap_grow(a->batches, a->capacity, sizeof(struct arrow_batch *));
    }
    struct arrow_batch *b = heap(sizeof *b + (size_t)a->num_levels * sizeof(struct arrow_array));
    a->batches[a->num_batches++] = b;
    b->first_row = a->num_rows, b->num_rows = rows;
    for (int i = 0; i < a->num_levels; i++) {
        const struct arrow_level *l = &a->levels[i];
        struct arrow_array *array = &b->arrays[i];
        if (l->node >= num_nodes) FAIL(DATA, "%s: a batch of too few arrays", a->path);
        array->length = number(&m->flat, nodes + 16 * l->node, 8);
        array->nulls = number(&m->flat, nodes + 16 * l->node + 8, 8);
        int count = buffers_of[l->type];
        if (count > 0) TRY(take_buffer(a, m, buffers, num_buffers, l->buffer, &array->validity));
        if (count > 1)
            TRY(take_buffer(a, m, buffers, num_buffers, l->buffer + 1,
                            l->type == INT ? &array->data : &array->offsets));
        if (count > 2) TRY(take_buffer(a, m, buffers, num_buffers, l->buffer + 2, &array->data));
    }
    if (b->arrays[0].length != rows)
        FAIL(DATA, "%s: a batch of %llu rows whose column has %llu", a->path,
             (unsigned long long)rows, (unsigned long long)b->arrays[0].length);
    a->num_rows += rows;
    return STATUS_OK;
}

/* What the file format puts around the messages: "ARROW1\0\0", and a footer that is not needed. */
static enum status strip_file(struct arrow *a, struct reader *r)
{
    enum { HEAD = 8, TAIL = 10 };
    uint32_t footer = 0;
    if (reader_left(r) < 6 || memcmp(r->at, "ARROW1", 6) != 0) return STATUS_OK;
    if (reader_left(r) < HEAD + TAIL || memcmp(r->end - 6, "ARROW1", 6) != 0)
        FAIL(DATA, "%s: the file is cut off", a->path);
    struct reader tail = {r->end - TAIL, r->end, r->name};
    TRY(reader_u32(&tail, &footer, "the footer's length"));
    r->at += HEAD, r->end -= TAIL;
    if (footer > reader_left(r)) FAIL(DATA, "%s: a footer of %u bytes", a->path, footer);
    r->end -= footer;
    return STATUS_OK;
}

enum status arrow_parse(struct arrow *a, const unsigned char *bytes, uint64_t size,
                        const char *column)
{
    struct reader r = {bytes, bytes + size, a->path};
    struct message m;
    TRY(strip_file(a, &r));
    TRY(next_message(&r, &m));
    if (m.type != HEADER_SCHEMA) FAIL(DATA, "%s: no Arrow file: it begins with no schema", a->path);
    TRY(read_schema(a, &m.flat, m.header, column));
    for (;;) {
        TRY(next_message(&r, &m));
        if (!m.type) return STATUS_OK;
        if (m.type == HEADER_BATCH) TRY(read_batch(a, &m));
    }
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

void arrow_close(struct arrow *a)
{
    for (size_t i = 0; i < a->num_batches; i++) free(a->batches[i]);
    free(a->batches);
    file_map_close(&a->map);
    free(a->path);
    *a = (struct arrow){0};
}

/* One row on its way down the levels. */
struct descent {
    const struct arrow *arrow;
    const struct arrow_batch *batch;
    arrow_visit *visit;
    void *context;
};

static enum status beyond(const struct descent *d)
{
    FAIL(DATA, "%s: an offset beyond its buffer", d->arrow->path);
}

/* Little-endian integers of a buffer, sign or not as they are. */
static bool integer(const struct parquet_bytes *b, uint64_t index, unsigned bytes, uint64_t *out)
{
    *out = 0;
    if (index >= b->len / bytes) return false;
    for (unsigned i = 0; i < bytes; i++) *out |= (uint64_t)b->data[index * bytes + i] << (8 * i);
    return true;
}

/* The bounds that offsets give item `index`: within `most`. */
static bool bounds(const struct arrow_level *l, const struct arrow_array *array, uint64_t index,
                   uint64_t most, uint64_t *begin, uint64_t *end)
{
    unsigned wide = l->type >= LARGE_BINARY ? 8 : 4;
    return integer(&array->offsets, index, wide, begin) &&
           integer(&array->offsets, index + 1, wide, end) && *begin <= *end && *end <= most;
}

static enum status read_value(const struct descent *d, const struct arrow_level *l,
                              const struct arrow_array *array, uint64_t index,
                              struct parquet_entry *e)
{
    uint64_t begin, end;
    e->has_value = true;
    if (l->type == INT) {
        unsigned bytes = (unsigned)l->bits / 8;
        if (!integer(&array->data, index, bytes, &begin)) return beyond(d);
        unsigned high = 64 - 8 * bytes;
        e->number = l->is_signed ? (int64_t)(begin << high) >> high : (int64_t)begin;
        return STATUS_OK;
    }
    if (!bounds(l, array, index, array->data.len, &begin, &end)) return beyond(d);
    e->bytes = (struct parquet_bytes){array->data.data + begin, end - begin};
    return STATUS_OK;
}

static enum status descend(const struct descent *d, int depth, uint64_t index, int rep, int lists)
{
    const struct arrow_level *l = &d->arrow->levels[depth];
    const struct arrow_array *array = &d->batch->arrays[depth];
    struct parquet_entry e = {.rep = rep};
    uint64_t begin = index, end = index + 1;
    if (index >= array->length || (array->validity.len && index / 8 >= array->validity.len))
        return beyond(d);
    bool is_null = array->validity.len && array->nulls &&
                   !(array->validity.data[index / 8] >> (index % 8) & 1);
    bool is_leaf = depth + 1 == d->arrow->num_levels;
    if (is_leaf && !is_null) TRY(read_value(d, l, array, index, &e));
    if (!is_leaf && is_list(l->type)) {
        if (!bounds(l, array, index, d->batch->arrays[depth + 1].length, &begin, &end))
            return beyond(d);
        lists++;
    }
    if (is_leaf || is_null || begin == end) return d->visit(d->context, &e);
    for (uint64_t i = begin; i < end; i++)
        TRY(descend(d, depth + 1, i, i == begin ? rep : lists, lists));
    return STATUS_OK;
}

static const struct arrow_batch *batch_of(const struct arrow *a, uint64_t row)
{
    size_t low = 0, high = a->num_batches;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(a->batches[middle]->first_row <= row ? &low : &high) = middle;
    }
    if (row >= a->num_rows) BUG("there is no such row");
    return a->batches[low];
}

uint64_t arrow_ahead(const struct arrow *a, uint64_t row, uint64_t *bytes)
{
    const struct arrow_batch *b = batch_of(a, row);
    uint64_t left = b->first_row + b->num_rows - row, all = 0;
    for (int i = 0; i < a->num_levels; i++) all += b->arrays[i].offsets.len + b->arrays[i].data.len;
    double each = (double)all / (double)b->num_rows, rows = each > 0 ? (double)*bytes / each : 0;
    if (each > 0 && rows < (double)left) left = (uint64_t)rows + 1;
    *bytes = (uint64_t)(each * (double)left);
    return row + left;
}

enum status arrow_row(const struct arrow *a, uint64_t row, arrow_visit *visit, void *context)
{
    if (!a->is_text && !a->is_integer)
        FAIL(UNSUPPORTED, "%s: a column of neither text nor whole numbers", a->path);
    struct descent d = {a, batch_of(a, row), visit, context};
    return descend(&d, 0, row - d.batch->first_row, 0, 0);
}
