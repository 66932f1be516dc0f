// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow_reader.h"

#include "formats/arrow_schema.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 }; /* of an array: validity, offsets, data */

void arrow_reader_init(struct arrow_reader *r, const struct arrow *a)
{
    *r = (struct arrow_reader){.arrow = a};
}

static void drop_batch(struct arrow_reader *r)
{
    if (r->decompressed) free(r->decompressed->variadic);
    free(r->decompressed);
    r->decompressed = NULL;
    r->batch = NULL;
}

void arrow_reader_release(struct arrow_reader *r)
{
    drop_batch(r);
    for (size_t i = 0; i < r->num_buffers; i++) text_release(&r->buffers[i]);
    free(r->buffers);
    *r = (struct arrow_reader){.arrow = r->arrow};
}

size_t arrow_reader_bytes(const struct arrow_reader *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->num_buffers; i++) bytes += r->buffers[i].capacity;
    return bytes;
}

static void reserve_buffers(struct arrow_reader *r, size_t count)
{
    if (count <= r->num_buffers) return;
    r->buffers = heap_grow(r->buffers, count, sizeof *r->buffers);
    memset(r->buffers + r->num_buffers, 0, (count - r->num_buffers) * sizeof *r->buffers);
    r->num_buffers = count;
}

/* Makes a copy of a compressed batch whose buffers are decompressed. */
static enum status decompress_batch(struct arrow_reader *r, const struct arrow_batch *b)
{
    const struct arrow *a = r->arrow;
    size_t arrays = (size_t)a->num_levels * sizeof(struct arrow_array);
    struct arrow_batch *own = r->decompressed = heap(sizeof *own + arrays);
    memcpy(own, b, sizeof *own + arrays);
    own->variadic = heap_grow(NULL, b->num_variadic + 1, sizeof *own->variadic);
    if (b->num_variadic)
        memcpy(own->variadic, b->variadic, b->num_variadic * sizeof *own->variadic);
    reserve_buffers(r, BUFFERS * (size_t)a->num_levels + b->num_variadic);
    struct text *storage = r->buffers;
    for (int i = 0; i < a->num_levels; i++) {
        struct arrow_array *array = &own->arrays[i];
        TRY(arrow_decompress(a, b->codec, &array->validity, storage++));
        TRY(arrow_decompress(a, b->codec, &array->offsets, storage++));
        TRY(arrow_decompress(a, b->codec, &array->data, storage++));
    }
    for (size_t i = 0; i < b->num_variadic; i++)
        TRY(arrow_decompress(a, b->codec, &own->variadic[i], storage++));
    r->batch = b;
    return STATUS_OK;
}

/* The state of a depth-first walk over the levels of one row. */
struct descent {
    const struct arrow *arrow;
    const struct arrow_batch *batch;
    arrow_visit *visit;
    void *context;
    uint64_t steps_left; /* list views may repeat items, and multiply from level to level */
};

/* Far more than a row has that repeats no item: an item takes at least a bit of the buffers, and a
 * step at each level. */
static uint64_t max_steps(const struct arrow *a, const struct arrow_batch *b)
{
    enum { MIN_STEPS = 64, STEPS_PER_BYTE = 256 };
    uint64_t bytes = 0;
    for (int i = 0; i < a->num_levels; i++)
        bytes += b->arrays[i].validity.len + b->arrays[i].offsets.len + b->arrays[i].data.len;
    return MIN_STEPS + STEPS_PER_BYTE * bytes;
}

static enum status offset_out_of_range(const struct descent *d)
{
    FAIL(DATA, "%s: offset out of range", d->arrow->path);
}

/* Item `index` of a buffer of little-endian integers, zero-extended. */
static bool read_integer(const struct byte_span *b, uint64_t index, unsigned bytes, uint64_t *out)
{
    *out = 0;
    if (index >= b->len / bytes) return false;
    for (unsigned i = 0; i < bytes; i++) *out |= (uint64_t)b->data[index * bytes + i] << (8 * i);
    return true;
}

struct item_range {
    uint64_t begin, end;
};

/* Sets *out to the range of child items that belong to item `index`; false if it exceeds
 * `limit`. */
static bool read_range(const struct arrow_level *l, const struct arrow_array *array, uint64_t index,
                       uint64_t limit, struct item_range *out)
{
    unsigned width = l->type >= ARROW_LARGE_BINARY && l->type != ARROW_LIST_VIEW ? 8 : 4;
    if (l->type == ARROW_FIXED_LIST) {
        bool overflows = __builtin_mul_overflow(index, l->list_size, &out->begin) ||
                         __builtin_add_overflow(out->begin, l->list_size, &out->end);
        return !overflows && out->end <= limit;
    }
    if (!read_integer(&array->offsets, index, width, &out->begin)) return false;
    if (l->type == ARROW_LIST_VIEW || l->type == ARROW_LARGE_LIST_VIEW) {
        uint64_t size;
        if (!read_integer(&array->data, index, width, &size)) return false;
        out->end = out->begin + size;
        return out->begin <= limit && size <= limit - out->begin;
    }
    return read_integer(&array->offsets, index + 1, width, &out->end) && out->begin <= out->end &&
           out->end <= limit;
}

/* A view has 16 bytes: the length, then up to 12 inline bytes; or a 4-byte prefix, the index of the
 * variadic buffer, and the offset in it. */
static bool read_view(const struct arrow_batch *b, const struct arrow_array *array, uint64_t index,
                      struct byte_span *out)
{
    enum { VIEW = 16, MAX_INLINE = 12 };
    uint64_t len, buffer, at;
    if (index >= array->data.len / VIEW) return false;
    const struct byte_span view = {array->data.data + VIEW * index, VIEW};
    read_integer(&view, 0, 4, &len), read_integer(&view, 2, 4, &buffer),
        read_integer(&view, 3, 4, &at);
    if (len <= MAX_INLINE) {
        *out = (struct byte_span){view.data + 4, len};
        return true;
    }
    if (buffer >= b->num_variadic || at > b->variadic[buffer].len ||
        len > b->variadic[buffer].len - at)
        return false;
    *out = (struct byte_span){b->variadic[buffer].data + at, len};
    return true;
}

static bool read_value_int(const struct arrow_level *l, const struct arrow_array *array,
                           uint64_t index, int64_t *out)
{
    unsigned bytes = (unsigned)l->bits / 8, high = 64 - 8 * bytes;
    uint64_t value;
    if (!read_integer(&array->data, index, bytes, &value)) return false;
    *out = l->is_signed ? (int64_t)(value << high) >> high : (int64_t)value;
    return true;
}

static bool read_value(const struct arrow_batch *b, const struct arrow_level *l,
                       const struct arrow_array *array, uint64_t index, struct column_entry *e)
{
    struct item_range range;
    e->has_value = true;
    if (l->type == ARROW_INT) return read_value_int(l, array, index, &e->number);
    if (arrow_is_view(l->type)) return read_view(b, array, index, &e->bytes);
    if (!read_range(l, array, index, array->data.len, &range)) return false;
    e->bytes = (struct byte_span){array->data.data + range.begin, range.end - range.begin};
    return true;
}

static bool is_null(const struct arrow_array *array, uint64_t index)
{
    return array->validity.len && array->nulls &&
           !(array->validity.data[index / 8] >> (index % 8) & 1);
}

static bool in_bounds(const struct arrow_array *array, uint64_t index)
{
    return index < array->length && (!array->validity.len || index / 8 < array->validity.len);
}

/* Reads the dictionary value that the index stands for. */
static bool read_from_dictionary(const struct descent *d, const struct arrow_array *array,
                                 uint64_t index, struct column_entry *e)
{
    const struct arrow *a = d->arrow;
    int64_t signed_index;
    if (!read_value_int(&a->levels[a->num_levels - 1], array, index, &signed_index)) return false;
    uint64_t position = (uint64_t)signed_index;
    for (size_t i = d->batch->dictionary_begin; i < d->batch->dictionary_end; i++) {
        const struct arrow_batch *b = a->dictionary_batches[i];
        if (position >= b->num_rows) {
            position -= b->num_rows;
            continue;
        }
        if (!in_bounds(b->arrays, position)) return false;
        return is_null(b->arrays, position) ||
               read_value(b, &a->dictionary_values, b->arrays, position, e);
    }
    return false;
}

static enum status descend(struct descent *d, int depth, uint64_t index, int rep, int lists)
{
    const struct arrow_level *l = &d->arrow->levels[depth];
    const struct arrow_array *array = &d->batch->arrays[depth];
    struct column_entry e = {.rep = rep};
    struct item_range range = {index, index + 1};
    if (!in_bounds(array, index)) return offset_out_of_range(d);
    if (!d->steps_left--)
        FAIL(DATA, "%s: the lists of a row repeat too many items", d->arrow->path);
    bool null = is_null(array, index), is_leaf = depth + 1 == d->arrow->num_levels;
    if (is_leaf && !null) {
        bool good = d->arrow->is_dictionary_encoded ? read_from_dictionary(d, array, index, &e)
                                                    : read_value(d->batch, l, array, index, &e);
        if (!good) return offset_out_of_range(d);
    }
    e.is_null_item = !e.has_value && (null || is_leaf) && lists && lists == d->arrow->num_lists;
    if (!is_leaf && !null && l->type != ARROW_STRUCT) {
        if (!read_range(l, array, index, d->batch->arrays[depth + 1].length, &range))
            return offset_out_of_range(d);
        lists++;
    }
    if (is_leaf || null || range.begin == range.end) return d->visit(d->context, &e);
    for (uint64_t i = range.begin; i < range.end; i++)
        TRY(descend(d, depth + 1, i, i == range.begin ? rep : lists, lists));
    return STATUS_OK;
}

enum status arrow_reader_visit_row(struct arrow_reader *r, uint64_t row, arrow_visit *visit,
                                   void *context)
{
    const struct arrow *a = r->arrow;
    const struct arrow_batch *b = arrow_find_batch(a, row);
    if (!a->is_text && !a->is_integer)
        FAIL(UNSUPPORTED, "%s: the column holds %s: expected text or integers", a->path,
             arrow_schema_type_name(a->dictionary_values.type));
    if (b != r->batch) {
        drop_batch(r);
        if (b->codec != CODEC_NONE) TRY(decompress_batch(r, b));
    }
    if (r->decompressed) b = r->decompressed;
    struct descent d = {a, b, visit, context, max_steps(a, b)};
    return descend(&d, 0, row - b->first_row, 0, 0);
}
