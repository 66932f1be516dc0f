// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow_reader.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 }; /* of an array */

void arrow_reader_init(struct arrow_reader *r, const struct arrow *a)
{
    *r = (struct arrow_reader){.arrow = a};
}

static void forget_batch(struct arrow_reader *r)
{
    if (r->unpacked) free(r->unpacked->more);
    free(r->unpacked);
    r->unpacked = NULL;
    r->batch = NULL;
}

void arrow_reader_release(struct arrow_reader *r)
{
    forget_batch(r);
    for (size_t i = 0; i < r->num_rooms; i++) text_release(&r->rooms[i]);
    free(r->rooms);
    *r = (struct arrow_reader){.arrow = r->arrow};
}

size_t arrow_reader_bytes(const struct arrow_reader *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->num_rooms; i++) bytes += r->rooms[i].capacity;
    return bytes;
}

static void need_rooms(struct arrow_reader *r, size_t count)
{
    if (count <= r->num_rooms) return;
    r->rooms = heap_grow(r->rooms, count, sizeof *r->rooms);
    memset(r->rooms + r->num_rooms, 0, (count - r->num_rooms) * sizeof *r->rooms);
    r->num_rooms = count;
}

/* The column's buffers of a batch that is packed. */
static enum status unpack_batch(struct arrow_reader *r, const struct arrow_batch *b)
{
    const struct arrow *a = r->arrow;
    size_t arrays = (size_t)a->num_levels * sizeof(struct arrow_array);
    struct arrow_batch *own = r->unpacked = heap(sizeof *own + arrays);
    memcpy(own, b, sizeof *own + arrays);
    own->more = heap_grow(NULL, b->num_more + 1, sizeof *own->more);
    if (b->num_more) memcpy(own->more, b->more, b->num_more * sizeof *own->more);
    need_rooms(r, BUFFERS * (size_t)a->num_levels + b->num_more);
    struct text *room = r->rooms;
    for (int i = 0; i < a->num_levels; i++) {
        struct arrow_array *array = &own->arrays[i];
        TRY(arrow_unpack(a, b->codec, &array->validity, room++));
        TRY(arrow_unpack(a, b->codec, &array->offsets, room++));
        TRY(arrow_unpack(a, b->codec, &array->data, room++));
    }
    for (size_t i = 0; i < b->num_more; i++) TRY(arrow_unpack(a, b->codec, &own->more[i], room++));
    r->batch = b;
    return STATUS_OK;
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
    unsigned wide = l->type >= ARROW_LARGE_BINARY && l->type != ARROW_LIST_VIEW ? 8 : 4;
    if (l->type == ARROW_FIXED_LIST) {
        bool overflows = __builtin_mul_overflow(index, l->list_size, begin) ||
                         __builtin_add_overflow(*begin, l->list_size, end);
        return !overflows && *end <= most;
    }
    if (l->type == ARROW_LIST_VIEW || l->type == ARROW_LARGE_LIST_VIEW)
        return integer(&array->offsets, index, wide, begin) &&
               integer(&array->data, index, wide, end) && *begin <= most && *end <= most - *begin &&
               (*end += *begin, true);
    return integer(&array->offsets, index, wide, begin) &&
           integer(&array->offsets, index + 1, wide, end) && *begin <= *end && *end <= most;
}

/* 16 bytes: the length, then up to 12 bytes themselves, or 4 of them and where all are. */
static bool read_view(const struct arrow_batch *b, const struct arrow_array *array, uint64_t index,
                      struct parquet_bytes *out)
{
    enum { VIEW = 16, SHORT = 12 };
    uint64_t len, buffer, at;
    if (index >= array->data.len / VIEW) return false;
    const struct parquet_bytes view = {array->data.data + VIEW * index, VIEW};
    integer(&view, 0, 4, &len), integer(&view, 2, 4, &buffer), integer(&view, 3, 4, &at);
    if (len <= SHORT) {
        *out = (struct parquet_bytes){view.data + 4, len};
        return true;
    }
    if (buffer >= b->num_more || at > b->more[buffer].len || len > b->more[buffer].len - at)
        return false;
    *out = (struct parquet_bytes){b->more[buffer].data + at, len};
    return true;
}

static bool read_int(const struct arrow_level *l, const struct arrow_array *array, uint64_t index,
                     int64_t *out)
{
    unsigned bytes = (unsigned)l->bits / 8, high = 64 - 8 * bytes;
    uint64_t value;
    if (!integer(&array->data, index, bytes, &value)) return false;
    *out = l->is_signed ? (int64_t)(value << high) >> high : (int64_t)value;
    return true;
}

static bool read_value(const struct arrow_batch *b, const struct arrow_level *l,
                       const struct arrow_array *array, uint64_t index, struct parquet_entry *e)
{
    uint64_t begin, end;
    e->has_value = true;
    if (l->type == ARROW_INT) return read_int(l, array, index, &e->number);
    if (arrow_is_view(l->type)) return read_view(b, array, index, &e->bytes);
    if (!bounds(l, array, index, array->data.len, &begin, &end)) return false;
    e->bytes = (struct parquet_bytes){array->data.data + begin, end - begin};
    return true;
}

static bool is_null(const struct arrow_array *array, uint64_t index)
{
    return array->validity.len && array->nulls &&
           !(array->validity.data[index / 8] >> (index % 8) & 1);
}

static bool is_there(const struct arrow_array *array, uint64_t index)
{
    return index < array->length && (!array->validity.len || index / 8 < array->validity.len);
}

/* The value at the place of the dictionary that an index tells. */
static bool look_up(const struct descent *d, const struct arrow_array *array, uint64_t index,
                    struct parquet_entry *e)
{
    const struct arrow *a = d->arrow;
    int64_t signed_place;
    if (!read_int(&a->levels[a->num_levels - 1], array, index, &signed_place)) return false;
    uint64_t place = (uint64_t)signed_place;
    for (size_t i = d->batch->first_values; i < d->batch->end_values; i++) {
        const struct arrow_batch *b = a->value_batches[i];
        if (place >= b->num_rows) {
            place -= b->num_rows;
            continue;
        }
        if (!is_there(b->arrays, place)) return false;
        return is_null(b->arrays, place) || read_value(b, &a->values, b->arrays, place, e);
    }
    return false;
}

static enum status descend(const struct descent *d, int depth, uint64_t index, int rep, int lists)
{
    const struct arrow_level *l = &d->arrow->levels[depth];
    const struct arrow_array *array = &d->batch->arrays[depth];
    struct parquet_entry e = {.rep = rep};
    uint64_t begin = index, end = index + 1;
    if (!is_there(array, index)) return beyond(d);
    bool null = is_null(array, index), is_leaf = depth + 1 == d->arrow->num_levels;
    if (is_leaf && !null) {
        bool good = d->arrow->is_coded ? look_up(d, array, index, &e)
                                       : read_value(d->batch, l, array, index, &e);
        if (!good) return beyond(d);
    }
    if (!is_leaf && !null && l->type != ARROW_STRUCT) {
        if (!bounds(l, array, index, d->batch->arrays[depth + 1].length, &begin, &end))
            return beyond(d);
        lists++;
    }
    if (is_leaf || null || begin == end) return d->visit(d->context, &e);
    for (uint64_t i = begin; i < end; i++)
        TRY(descend(d, depth + 1, i, i == begin ? rep : lists, lists));
    return STATUS_OK;
}

enum status arrow_reader_row(struct arrow_reader *r, uint64_t row, arrow_visit *visit,
                             void *context)
{
    const struct arrow *a = r->arrow;
    const struct arrow_batch *b = arrow_batch_of(a, row);
    if (!a->is_text && !a->is_integer)
        FAIL(UNSUPPORTED, "%s: a column of neither text nor whole numbers", a->path);
    if (b != r->batch) {
        forget_batch(r);
        if (b->codec != CODEC_NONE) TRY(unpack_batch(r, b));
    }
    struct descent d = {a, r->unpacked ? r->unpacked : b, visit, context};
    return descend(&d, 0, row - b->first_row, 0, 0);
}
