// SPDX-License-Identifier: Apache-2.0
#include "formats/parquet_column.h"

#include "formats/bit_packing.h"
#include "formats/parquet_values.h"
#include "formats/thrift.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PAGE_DATA = 0, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum { LEVELS_HYBRID = 3, LEVELS_PACKED = 4 };
enum { PIECE = 1024, MOST_BYTES = 1 << 30 };

/* The head of a page, v1 and v2 alike, and its bytes as they lie in the file. */
struct head {
    int64_t type, unpacked, packed, crc;
    int64_t values, encoding, rows; /* rows -1: not said */
    int64_t def_encoding, rep_encoding;
    int64_t def_bytes, rep_bytes, is_packed; /* v2 */
    const unsigned char *bytes;
};

void parquet_column_init(struct parquet_column *c, const struct parquet *file, size_t leaf)
{
    *c = (struct parquet_column){.file = file, .leaf = &file->leaves[leaf]};
}

void parquet_column_release(struct parquet_column *c)
{
    text_release(&c->page);
    text_release(&c->unpacked_dictionary);
    parquet_values_release(&c->dictionary);
    parquet_values_release(&c->values);
    free(c->rep);
    free(c->def);
    *c = (struct parquet_column){.file = c->file, .leaf = c->leaf};
}

static size_t values_bytes(const struct parquet_values *v)
{
    return v->capacity * ((v->bytes ? sizeof *v->bytes : 0) + (v->numbers ? 8 : 0)) +
           v->room.capacity;
}

size_t parquet_column_bytes(const struct parquet_column *c)
{
    return c->page.capacity + c->unpacked_dictionary.capacity + 2 * c->capacity +
           values_bytes(&c->dictionary) + values_bytes(&c->values);
}

static const struct parquet_chunk *chunk_of(const struct parquet_column *c)
{
    return &c->file->groups[c->group].chunks[c->leaf - c->file->leaves];
}

static void start_group(struct parquet_column *c, size_t group)
{
    const struct file_map *map = &c->file->map;
    c->group = group;
    c->pages =
        (struct reader){map->data + chunk_of(c)->at, map->data + c->file->data_end, c->file->path};
    c->row = c->file->groups[group].first_row;
    c->seen = 0;
    c->count = c->entry = c->value = 0;
    c->has_dictionary = false;
    c->started = true;
}

static enum status check_head(const struct parquet_column *c, const struct head *h, bool v2)
{
    uint64_t left = chunk_of(c)->num_values - c->seen;
    if (h->unpacked > MOST_BYTES)
        FAIL(UNSUPPORTED, "%s: a page of %lld bytes; %d at most are read", c->file->path,
             (long long)h->unpacked, MOST_BYTES);
    if (h->unpacked < 0 || h->values < 0 ||
        (h->type != PAGE_DICTIONARY && (uint64_t)h->values > left))
        FAIL(DATA, "%s: a page of %lld values in %lld bytes; %llu values are left of the chunk",
             c->file->path, (long long)h->values, (long long)h->unpacked, (unsigned long long)left);
    int64_t most = h->unpacked < h->packed ? h->unpacked : h->packed;
    if (v2 && (h->def_bytes < 0 || h->rep_bytes < 0 || h->rep_bytes > most ||
               h->def_bytes > most - h->rep_bytes))
        FAIL(DATA, "%s: levels of %lld and %lld bytes in a page of %lld", c->file->path,
             (long long)h->rep_bytes, (long long)h->def_bytes, (long long)most);
    return STATUS_OK;
}

/* Steps behind the next page.  Its checksum is not yet checked. */
static enum status next_head(struct parquet_column *c, struct head *h)
{
    bool v1 = false, v2 = false, dictionary = false;
    size_t bytes;
    *h = (struct head){.type = -1,
                       .packed = -1,
                       .unpacked = -1,
                       .crc = INT64_MAX,
                       .values = -1,
                       .encoding = -1,
                       .rows = -1,
                       .is_packed = 1,
                       .def_encoding = 3,
                       .rep_encoding = 3};
    const struct thrift_field one[] = {{1, .number = &h->values},
                                       {2, .number = &h->encoding},
                                       {3, .number = &h->def_encoding},
                                       {4, .number = &h->rep_encoding},
                                       {0}};
    const struct thrift_field other[] = {{1, .number = &h->values}, {0}};
    const struct thrift_field two[] = {{1, .number = &h->values},
                                       {3, .number = &h->rows},
                                       {4, .number = &h->encoding},
                                       {5, .number = &h->def_bytes},
                                       {6, .number = &h->rep_bytes},
                                       {7, .number = &h->is_packed},
                                       {0}};
    const struct thrift_field fields[] = {{1, .number = &h->type},
                                          {2, .number = &h->unpacked},
                                          {3, .number = &h->packed},
                                          {4, .number = &h->crc},
                                          {5, .fields = one, .present = &v1},
                                          {7, .fields = other, .present = &dictionary},
                                          {8, .fields = two, .present = &v2},
                                          {0}};
    TRY(thrift_read(&c->pages, fields));
    if (h->packed < 0) FAIL(DATA, "%s: a page of %lld bytes", c->file->path, (long long)h->packed);
    TRY(reader_count(&c->pages, (uint64_t)h->packed, 1, &bytes, "a page"));
    TRY(reader_bytes(&c->pages, bytes, &h->bytes, "a page"));
    bool is_kind[] = {[PAGE_DATA] = v1, [PAGE_DICTIONARY] = dictionary, [PAGE_DATA_V2] = v2};
    if (h->type == 1) return STATUS_OK; /* an index page: never written */
    if (h->type < 0 || h->type > PAGE_DATA_V2 || !is_kind[h->type])
        FAIL(DATA, "%s: a page of type %lld does not say what it is", c->file->path,
             (long long)h->type);
    return check_head(c, h, h->type == PAGE_DATA_V2);
}

static enum status check_sum(const struct parquet_column *c, const struct head *h)
{
    if (h->crc == INT64_MAX) return STATUS_OK;
    uint32_t want = (uint32_t)h->crc;
    uint32_t got = (uint32_t)crc32_z(0, h->bytes, (size_t)h->packed);
    if (got != want)
        FAIL(DATA, "%s: the page at byte %llu has the checksum %08x, and %08x is written",
             c->file->path, (unsigned long long)(h->bytes - c->file->map.data), got, want);
    return STATUS_OK;
}

/* The part of a page that the codec packed, from `from` bytes on; it may lie in the file itself. */
static enum status unpack(const struct parquet_column *c, const struct head *h, size_t from,
                          struct text *room, struct reader *out)
{
    size_t in_len = (size_t)h->packed - from, len = (size_t)h->unpacked - from;
    enum codec codec = h->is_packed ? chunk_of(c)->codec : CODEC_NONE;
    *out = (struct reader){h->bytes + from, h->bytes + from, c->file->path};
    if (!len && !in_len) return STATUS_OK;
    if (codec == CODEC_NONE && in_len == len) {
        out->end += len;
        return STATUS_OK;
    }
    TRY(codec_check(codec, h->bytes + from, in_len, len, c->file->path));
    text_clear(room);
    text_reserve(room, len);
    unsigned char *to = (unsigned char *)room->data;
    TRY(codec_unpack(codec, h->bytes + from, in_len, to, len, c->file->path));
    out->at = to, out->end = to + len;
    return STATUS_OK;
}

static enum status read_dictionary(struct parquet_column *c, const struct head *h)
{
    struct reader bytes;
    if (c->has_dictionary) FAIL(DATA, "%s: a chunk of two dictionaries", c->file->path);
    TRY(check_sum(c, h));
    TRY(unpack(c, h, 0, &c->unpacked_dictionary, &bytes));
    TRY(parquet_values_read(&c->dictionary, c->leaf, PARQUET_PLAIN, bytes, (size_t)h->values,
                            NULL));
    c->has_dictionary = true;
    return STATUS_OK;
}

static int width_of(int max) { return 32 - __builtin_clz((unsigned)max); }

/* The deprecated encoding: end to end, from the highest bit of each byte on. */
static void take_packed(const unsigned char *bytes, size_t from, int width, uint32_t *out,
                        size_t count)
{
    for (size_t i = 0, bit = from * (size_t)width; i < count; i++) {
        out[i] = 0;
        for (int b = 0; b < width; b++, bit++)
            out[i] = out[i] << 1 | (bytes[bit / 8] >> (7 - bit % 8) & 1);
    }
}

/* Levels of one kind, into `out`; *top counts those that are `max`. */
static enum status read_levels(struct reader bytes, int64_t encoding, int max, uint8_t *out,
                               size_t count, size_t *top)
{
    uint32_t piece[PIECE];
    struct hybrid h;
    *top = 0;
    TRY(hybrid_init(&h, bytes, width_of(max)));
    for (size_t at = 0; at < count;) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        if (encoding == LEVELS_PACKED)
            take_packed(bytes.at, at, width_of(max), piece, n);
        else
            TRY(hybrid_take(&h, piece, n));
        for (size_t i = 0; i < n; i++) {
            if (piece[i] > (uint32_t)max)
                FAIL(DATA, "%s: level %u where %d is the highest", bytes.name, piece[i], max);
            out[at + i] = (uint8_t)piece[i];
            *top += piece[i] == (uint32_t)max;
        }
        at += n;
    }
    return STATUS_OK;
}

/* Where levels lie: v1 has their length before them, v2 in the head; of packed ones it follows from
 * their number. */
static enum status take_levels(struct reader *r, const struct head *h, int64_t v2_bytes,
                               int64_t encoding, int max, struct reader *out)
{
    uint32_t len = (uint32_t)v2_bytes;
    bool packed = encoding == LEVELS_PACKED && h->type == PAGE_DATA;
    if (encoding != LEVELS_HYBRID && !packed)
        FAIL(UNSUPPORTED, "%s: levels in encoding %lld", r->name, (long long)encoding);
    if (packed)
        len = (uint32_t)((h->values * width_of(max) + 7) / 8);
    else if (h->type == PAGE_DATA)
        TRY(reader_u32(r, &len, "the length of levels"));
    *out = (struct reader){.name = r->name};
    TRY(reader_bytes(r, len, &out->at, "levels"));
    out->end = out->at + len;
    return STATUS_OK;
}

static void reserve(struct parquet_column *c, size_t count)
{
    c->count = count;
    if (count <= c->capacity && c->def) return;
    c->capacity = count;
    c->def = heap_grow(c->def, count + 1, 1);
    c->rep = heap_grow(c->rep, count + 1, 1);
}

static enum status read_page(struct parquet_column *c, const struct head *h)
{
    const struct parquet_leaf *leaf = c->leaf;
    bool v2 = h->type == PAGE_DATA_V2;
    size_t levels = v2 ? (size_t)(h->def_bytes + h->rep_bytes) : 0, count, top;
    struct reader head = {h->bytes, h->bytes + levels, c->file->path}, body, part;
    if (h->values > PARQUET_MOST_VALUES)
        FAIL(UNSUPPORTED, "%s: %lld values in a page", c->file->path, (long long)h->values);
    TRY(check_sum(c, h));
    TRY(unpack(c, h, levels, &c->page, &body));
    struct reader *from = v2 ? &head : &body;
    reserve(c, (size_t)h->values);
    count = c->count;
    if (leaf->max_rep || (v2 && h->rep_bytes)) {
        TRY(take_levels(from, h, h->rep_bytes, h->rep_encoding, leaf->max_rep, &part));
        if (leaf->max_rep)
            TRY(read_levels(part, h->rep_encoding, leaf->max_rep, c->rep, c->count, &top));
    }
    if (leaf->max_def || (v2 && h->def_bytes)) {
        TRY(take_levels(from, h, h->def_bytes, h->def_encoding, leaf->max_def, &part));
        if (leaf->max_def)
            TRY(read_levels(part, h->def_encoding, leaf->max_def, c->def, c->count, &count));
    }
    TRY(parquet_values_read(&c->values, leaf, h->encoding, body, count,
                            c->has_dictionary ? &c->dictionary : NULL));
    c->seen += (uint64_t)h->values;
    c->entry = c->value = 0;
    return STATUS_OK;
}

/* The next data page of the group, unread; a dictionary before it is read.  *none: no more. */
static enum status next_page(struct parquet_column *c, struct head *h, bool *none)
{
    for (;;) {
        *none = c->seen >= chunk_of(c)->num_values;
        if (*none) return STATUS_OK;
        TRY(next_head(c, h));
        if (h->type == PAGE_DICTIONARY) TRY(read_dictionary(c, h));
        if (h->type == PAGE_DATA || h->type == PAGE_DATA_V2) return STATUS_OK;
    }
}

/* An entry of the row group is at hand, unless *none. */
static enum status need_entry(struct parquet_column *c, bool *none)
{
    struct head h;
    for (*none = false; c->entry == c->count;) {
        TRY(next_page(c, &h, none));
        if (*none) return STATUS_OK;
        TRY(read_page(c, &h));
    }
    return STATUS_OK;
}

static bool begins_row(const struct parquet_column *c, size_t entry)
{
    return !c->leaf->max_rep || !c->rep[entry];
}

static uint64_t end_of_group(const struct parquet_column *c)
{
    const struct parquet_group *g = &c->file->groups[c->group];
    return g->first_row + g->num_rows;
}

static enum status wrong_rows(const struct parquet_column *c)
{
    const struct parquet_group *g = &c->file->groups[c->group];
    FAIL(DATA, "%s: row group %zu has %s rows than the %llu of its footer", c->file->path, c->group,
         c->row < end_of_group(c) ? "fewer" : "more", (unsigned long long)g->num_rows);
}

/* At a row's first entry, in the next group if this one is over. */
static enum status need_row(struct parquet_column *c)
{
    bool none = false;
    while (!c->started || c->row == end_of_group(c)) {
        size_t next = c->started ? c->group + 1 : 0;
        if (next == c->file->num_groups) BUG("there is no such row");
        start_group(c, next);
    }
    TRY(need_entry(c, &none));
    if (none) return wrong_rows(c);
    if (!begins_row(c, c->entry))
        FAIL(DATA, "%s: row %llu does not begin where it should", c->file->path,
             (unsigned long long)c->row);
    return STATUS_OK;
}

static void step(struct parquet_column *c)
{
    bool has_value = !c->leaf->max_def || c->def[c->entry] == c->leaf->max_def;
    c->row += begins_row(c, c->entry);
    c->value += has_value;
    c->entry++;
}

enum status parquet_column_next(struct parquet_column *c, struct parquet_entry *e)
{
    if (c->entry == c->count || begins_row(c, c->entry)) TRY(need_row(c));
    size_t i = c->entry, v = c->value;
    *e = (struct parquet_entry){.rep = c->leaf->max_rep ? c->rep[i] : 0,
                                .def = c->leaf->max_def ? c->def[i] : 0};
    e->has_value = e->def == c->leaf->max_def;
    step(c);
    if (!e->has_value) return STATUS_OK;
    if (c->values.bytes)
        e->bytes = c->values.bytes[v];
    else
        e->number = c->values.numbers[v];
    return STATUS_OK;
}

enum status parquet_column_goes_on(struct parquet_column *c, bool *more)
{
    bool none;
    *more = false;
    if (c->entry == c->count) {
        /* lists may go on in the next page; and behind a group's last row there is nothing */
        if (!c->leaf->max_rep && c->row < end_of_group(c)) return STATUS_OK;
        TRY(need_entry(c, &none));
        if (none) return c->row == end_of_group(c) ? STATUS_OK : wrong_rows(c);
    }
    *more = !begins_row(c, c->entry);
    return *more || c->row < end_of_group(c) ? STATUS_OK : wrong_rows(c);
}

static size_t group_of(const struct parquet *p, uint64_t row)
{
    size_t low = 0, high = p->num_groups;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(p->groups[middle].first_row <= row ? &low : &high) = middle;
    }
    return low;
}

/* Over pages of which the head says that they end before the row. */
static enum status skip_pages(struct parquet_column *c, uint64_t row)
{
    struct head h;
    bool none;
    for (;;) {
        TRY(next_page(c, &h, &none));
        if (none) return wrong_rows(c);
        int64_t rows = c->leaf->max_rep ? h.rows : h.values;
        if (rows < 0 || c->row + (uint64_t)rows > row) return read_page(c, &h);
        c->row += (uint64_t)rows;
        c->seen += (uint64_t)h.values;
    }
}

enum status parquet_column_seek(struct parquet_column *c, uint64_t row)
{
    if (row >= c->file->num_rows) BUG("there is no such row");
    size_t group = group_of(c->file, row);
    if (!c->started || c->group != group || row < c->row) start_group(c, group);
    for (;;) {
        while (c->entry < c->count && (c->row < row || !begins_row(c, c->entry))) step(c);
        if (c->entry < c->count) return STATUS_OK;
        /* a v1 page of lists may go on with the row before: so it must be unpacked */
        TRY(skip_pages(c, row));
    }
}

/* A part of the row group as large as the average says. */
static uint64_t part_of_group(const struct parquet_column *c, uint64_t row, uint64_t *bytes)
{
    enum { PARTS = 8 };
    const struct parquet_group *g = &c->file->groups[c->group];
    uint64_t unpacked = chunk_of(c)->unpacked;
    double part = unpacked ? (double)*bytes / (double)unpacked : 1;
    if (part < 1.0 / PARTS) part = 1.0 / PARTS;
    uint64_t rows = part < 1 ? (uint64_t)(part * (double)g->num_rows) + 1 : g->num_rows;
    uint64_t end = end_of_group(c) - row < rows ? end_of_group(c) : row + rows;
    *bytes = (uint64_t)((double)unpacked * (double)(end - row) / (double)g->num_rows);
    return end;
}

uint64_t parquet_column_ahead(struct parquet_column *c, uint64_t row, uint64_t *bytes)
{
    uint64_t passed = 0, wanted = *bytes;
    size_t group = group_of(c->file, row);
    struct head h;
    if (!c->started || c->group != group || row < c->row) start_group(c, group);
    while (passed < wanted && c->row < end_of_group(c) && c->seen < chunk_of(c)->num_values) {
        if (next_head(c, &h)) break; /* who reads it will tell */
        if (h.type != PAGE_DATA && h.type != PAGE_DATA_V2) continue;
        int64_t rows = c->leaf->max_rep ? h.rows : h.values;
        if (rows < 0) {
            c->started = false;
            return part_of_group(c, row, bytes);
        }
        c->row += (uint64_t)rows;
        c->seen += (uint64_t)h.values;
        if (c->row > row) passed += (uint64_t)h.unpacked;
    }
    *bytes = passed;
    if (passed >= wanted && c->row < end_of_group(c)) return c->row;
    c->started = false;
    return end_of_group(c);
}
