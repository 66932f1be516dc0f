// SPDX-License-Identifier: Apache-2.0
#include "formats/parquet_column.h"

#include "formats/bit_packing.h"
#include "formats/thrift.h"

#include <stdlib.h>
#include <zlib.h>

/* PageType and Encoding of parquet.thrift. */
enum { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 };
enum { LEVELS_RLE = 3, LEVELS_BIT_PACKED = 4 };
enum { BATCH = 1024, MAX_PAGE_BYTES = 1 << 30 };

/* A PageHeader of either version, and the bytes of the page in the file. */
struct page_header {
    int64_t type, uncompressed, compressed, crc;
    int64_t values, encoding, rows; /* rows: -1 if the header omits them */
    int64_t def_encoding, rep_encoding;
    int64_t def_bytes, rep_bytes, is_compressed; /* v2 */
    const unsigned char *bytes;
};

void parquet_column_init(struct parquet_column *c, const struct parquet *file, size_t leaf)
{
    *c = (struct parquet_column){.file = file, .leaf = &file->leaves[leaf]};
}

void parquet_column_release(struct parquet_column *c)
{
    text_release(&c->page);
    text_release(&c->dictionary_page);
    parquet_values_release(&c->dictionary);
    parquet_values_release(&c->values);
    free(c->rep);
    free(c->def);
    *c = (struct parquet_column){.file = c->file, .leaf = c->leaf};
}

static size_t values_bytes(const struct parquet_values *v)
{
    return v->capacity * ((v->bytes ? sizeof *v->bytes : 0) + (v->numbers ? 8 : 0)) +
           v->storage.capacity;
}

size_t parquet_column_bytes(const struct parquet_column *c)
{
    return c->page.capacity + c->dictionary_page.capacity + 2 * c->capacity +
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
    c->pages = (struct reader){map->data + chunk_of(c)->offset, map->data + c->file->data_end,
                               c->file->path};
    c->row = c->file->groups[group].first_row;
    c->values_read = 0;
    c->count = c->entry = c->value = 0;
    c->has_dictionary = false;
    c->started = true;
}

static enum status check_page_header(const struct parquet_column *c, const struct page_header *h,
                                     bool v2)
{
    uint64_t left = chunk_of(c)->num_values - c->values_read;
    if (h->uncompressed > MAX_PAGE_BYTES)
        FAIL(UNSUPPORTED, "%s: page of %lld bytes: the limit is %d", c->file->path,
             (long long)h->uncompressed, MAX_PAGE_BYTES);
    if (h->uncompressed < 0 || h->values < 0 ||
        (h->type != PAGE_DICTIONARY && (uint64_t)h->values > left))
        FAIL(DATA,
             "%s: page of %lld values in %lld bytes, but the column chunk has %llu values left",
             c->file->path, (long long)h->values, (long long)h->uncompressed,
             (unsigned long long)left);
    int64_t limit = h->uncompressed < h->compressed ? h->uncompressed : h->compressed;
    if (v2 && (h->def_bytes < 0 || h->rep_bytes < 0 || h->rep_bytes > limit ||
               h->def_bytes > limit - h->rep_bytes))
        FAIL(DATA, "%s: levels of %lld and %lld bytes exceed the page of %lld bytes", c->file->path,
             (long long)h->rep_bytes, (long long)h->def_bytes, (long long)limit);
    return STATUS_OK;
}

/* Reads a page header and advances past the page, whose CRC is not verified yet. */
static enum status read_page_header(struct parquet_column *c, struct page_header *h)
{
    bool v1 = false, v2 = false, dictionary = false;
    size_t bytes;
    *h = (struct page_header){.type = -1,
                              .compressed = -1,
                              .uncompressed = -1,
                              .crc = INT64_MAX,
                              .values = -1,
                              .encoding = -1,
                              .rows = -1,
                              .is_compressed = 1,
                              .def_encoding = LEVELS_RLE,
                              .rep_encoding = LEVELS_RLE};
    const struct thrift_field v1_fields[] = {{1, .number = &h->values},
                                             {2, .number = &h->encoding},
                                             {3, .number = &h->def_encoding},
                                             {4, .number = &h->rep_encoding},
                                             {0}};
    const struct thrift_field dictionary_fields[] = {{1, .number = &h->values}, {0}};
    const struct thrift_field v2_fields[] = {{1, .number = &h->values},
                                             {3, .number = &h->rows},
                                             {4, .number = &h->encoding},
                                             {5, .number = &h->def_bytes},
                                             {6, .number = &h->rep_bytes},
                                             {7, .number = &h->is_compressed},
                                             {0}};
    const struct thrift_field fields[] = {{1, .number = &h->type},
                                          {2, .number = &h->uncompressed},
                                          {3, .number = &h->compressed},
                                          {4, .number = &h->crc},
                                          {5, .fields = v1_fields, .present = &v1},
                                          {7, .fields = dictionary_fields, .present = &dictionary},
                                          {8, .fields = v2_fields, .present = &v2},
                                          {0}};
    TRY(thrift_read(&c->pages, fields));
    if (h->compressed < 0)
        FAIL(DATA, "%s: invalid page size %lld", c->file->path, (long long)h->compressed);
    TRY(reader_count(&c->pages, (uint64_t)h->compressed, 1, &bytes, "a page"));
    TRY(reader_bytes(&c->pages, bytes, &h->bytes, "a page"));
    bool is_kind[] = {[PAGE_DATA] = v1, [PAGE_DICTIONARY] = dictionary, [PAGE_DATA_V2] = v2};
    if (h->type == PAGE_INDEX) return STATUS_OK; /* writers never emit it */
    if (h->type < 0 || h->type > PAGE_DATA_V2 || !is_kind[h->type])
        FAIL(DATA, "%s: page of type %lld lacks its header", c->file->path, (long long)h->type);
    return check_page_header(c, h, h->type == PAGE_DATA_V2);
}

static enum status check_crc(const struct parquet_column *c, const struct page_header *h)
{
    if (h->crc == INT64_MAX) return STATUS_OK;
    uint32_t expected = (uint32_t)h->crc;
    uint32_t actual = (uint32_t)crc32_z(0, h->bytes, (size_t)h->compressed);
    if (actual != expected)
        FAIL(DATA, "%s: checksum mismatch in the page at byte %llu: computed %08x, stored %08x",
             c->file->path, (unsigned long long)(h->bytes - c->file->map.data), actual, expected);
    return STATUS_OK;
}

/* Decompresses a page from byte `from` on into `storage`.  Uncompressed data stays in the file.
 * Arrow C++ before 3.0 compressed v2 pages whose header says that they are not (ARROW-10353). */
static enum status decompress(const struct parquet_column *c, const struct page_header *h,
                              size_t from, struct text *storage, struct reader *out)
{
    size_t in_len = (size_t)h->compressed - from, len = (size_t)h->uncompressed - from;
    enum codec codec = h->is_compressed || in_len != len ? chunk_of(c)->codec : CODEC_NONE;
    *out = (struct reader){h->bytes + from, h->bytes + from, c->file->path};
    if (!len && !in_len) return STATUS_OK;
    if (codec == CODEC_NONE && in_len == len) {
        out->end += len;
        return STATUS_OK;
    }
    const struct reader in = {h->bytes + from, h->bytes + from + in_len, c->file->path};
    TRY(codec_check_size(codec, in, len));
    text_clear(storage);
    text_reserve(storage, len);
    unsigned char *to = (unsigned char *)storage->data;
    TRY(codec_decompress(codec, in, to, len));
    out->at = to, out->end = to + len;
    return STATUS_OK;
}

static enum status read_dictionary(struct parquet_column *c, const struct page_header *h)
{
    struct reader bytes;
    if (c->has_dictionary) FAIL(DATA, "%s: column chunk with two dictionary pages", c->file->path);
    TRY(check_crc(c, h));
    TRY(decompress(c, h, 0, &c->dictionary_page, &bytes));
    const struct parquet_encoded values = {c->leaf, PARQUET_PLAIN, bytes, (size_t)h->values, NULL};
    TRY(parquet_values_read(&c->dictionary, &values));
    c->has_dictionary = true;
    return STATUS_OK;
}

static int width_of(int max) { return 32 - __builtin_clz((unsigned)max); }

/* The deprecated BIT_PACKED encoding: most significant bit first, without padding. */
static void read_bit_packed(const unsigned char *bytes, size_t from, int width, uint32_t *out,
                            size_t count)
{
    for (size_t i = 0, bit = from * (size_t)width; i < count; i++) {
        out[i] = 0;
        for (int b = 0; b < width; b++, bit++)
            out[i] = out[i] << 1 | (bytes[bit / 8] >> (7 - bit % 8) & 1);
    }
}

/* The encoded repetition or definition levels of a page, and where to decode them to. */
struct levels {
    int max;
    int64_t encoding, v2_bytes;
    uint8_t *out;
};

/* Finds the bytes of levels.  Their length precedes them in a v1 page and is in the header of a v2
 * page; for BIT_PACKED it follows from their number. */
static enum status find_levels(struct reader *r, const struct page_header *h,
                               const struct levels *l, struct reader *bytes)
{
    uint32_t len = (uint32_t)l->v2_bytes;
    bool packed = l->encoding == LEVELS_BIT_PACKED && h->type == PAGE_DATA;
    if (l->encoding != LEVELS_RLE && !packed)
        FAIL(UNSUPPORTED, "%s: level encoding %lld is not supported", r->name,
             (long long)l->encoding);
    if (packed)
        len = (uint32_t)((h->values * width_of(l->max) + 7) / 8);
    else if (h->type == PAGE_DATA)
        TRY(reader_u32(r, &len, "the length of levels"));
    *bytes = (struct reader){.name = r->name};
    TRY(reader_bytes(r, len, &bytes->at, "levels"));
    bytes->end = bytes->at + len;
    return STATUS_OK;
}

/* Decodes `count` levels; *num_max counts those equal to l->max. */
static enum status decode_levels(struct reader bytes, const struct levels *l, size_t count,
                                 size_t *num_max)
{
    uint32_t decoded[BATCH];
    struct bit_packing b;
    *num_max = 0;
    TRY(bit_packing_init(&b, bytes, width_of(l->max)));
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BATCH ? count - at : BATCH;
        if (l->encoding == LEVELS_BIT_PACKED)
            read_bit_packed(bytes.at, at, width_of(l->max), decoded, n);
        else
            TRY(bit_packing_read(&b, decoded, n));
        for (size_t i = 0; i < n; i++) {
            if (decoded[i] > (uint32_t)l->max)
                FAIL(DATA, "%s: level %u: must be at most %d", bytes.name, decoded[i], l->max);
            l->out[at + i] = (uint8_t)decoded[i];
            *num_max += decoded[i] == (uint32_t)l->max;
        }
        at += n;
    }
    return STATUS_OK;
}

static void reserve_levels(struct parquet_column *c, size_t count)
{
    c->count = count;
    if (count <= c->capacity && c->def) return;
    c->capacity = count;
    c->def = heap_grow(c->def, count + 1, 1);
    c->rep = heap_grow(c->rep, count + 1, 1);
}

static enum status read_page(struct parquet_column *c, const struct page_header *h)
{
    const struct parquet_leaf *leaf = c->leaf;
    bool v2 = h->type == PAGE_DATA_V2;
    size_t levels = v2 ? (size_t)(h->def_bytes + h->rep_bytes) : 0, count, num_max;
    struct reader head = {h->bytes, h->bytes + levels, c->file->path}, body, part;
    if (h->values > PARQUET_MAX_PAGE_VALUES)
        FAIL(UNSUPPORTED, "%s: page of %lld values exceeds the limit of %d", c->file->path,
             (long long)h->values, PARQUET_MAX_PAGE_VALUES);
    TRY(check_crc(c, h));
    TRY(decompress(c, h, levels, &c->page, &body));
    struct reader *from = v2 ? &head : &body;
    reserve_levels(c, (size_t)h->values);
    count = c->count;
    const struct levels rep = {leaf->max_rep, h->rep_encoding, h->rep_bytes, c->rep};
    const struct levels def = {leaf->max_def, h->def_encoding, h->def_bytes, c->def};
    if (rep.max || (v2 && rep.v2_bytes)) {
        TRY(find_levels(from, h, &rep, &part));
        if (rep.max) TRY(decode_levels(part, &rep, c->count, &num_max));
        if (rep.max && !c->values_read && c->count && c->rep[0])
            FAIL(DATA, "%s: row group %zu begins with repetition level %d: expected 0",
                 c->file->path, c->group, c->rep[0]);
    }
    if (def.max || (v2 && def.v2_bytes)) {
        TRY(find_levels(from, h, &def, &part));
        if (def.max) TRY(decode_levels(part, &def, c->count, &count));
    }
    const struct parquet_encoded values = {leaf, h->encoding, body, count,
                                           c->has_dictionary ? &c->dictionary : NULL};
    TRY(parquet_values_read(&c->values, &values));
    c->values_read += (uint64_t)h->values;
    c->entry = c->value = 0;
    return STATUS_OK;
}

/* Reads headers up to the next data page of the chunk, and any dictionary page on the way. Sets
 * *at_end after the last one. */
static enum status read_next_data_header(struct parquet_column *c, struct page_header *h,
                                         bool *at_end)
{
    for (;;) {
        *at_end = c->values_read >= chunk_of(c)->num_values;
        if (*at_end) return STATUS_OK;
        TRY(read_page_header(c, h));
        if (h->type == PAGE_DICTIONARY) TRY(read_dictionary(c, h));
        if (h->type == PAGE_DATA || h->type == PAGE_DATA_V2) return STATUS_OK;
    }
}

/* Reads pages until there is an entry, or sets *at_end. */
static enum status ensure_entry(struct parquet_column *c, bool *at_end)
{
    struct page_header h;
    for (*at_end = false; c->entry == c->count;) {
        TRY(read_next_data_header(c, &h, at_end));
        if (*at_end) return STATUS_OK;
        TRY(read_page(c, &h));
    }
    return STATUS_OK;
}

static bool starts_row(const struct parquet_column *c, size_t entry)
{
    return !c->leaf->max_rep || !c->rep[entry];
}

static uint64_t group_end(const struct parquet_column *c)
{
    const struct parquet_group *g = &c->file->groups[c->group];
    return g->first_row + g->num_rows;
}

static enum status fail_row_count(const struct parquet_column *c)
{
    const struct parquet_group *g = &c->file->groups[c->group];
    FAIL(DATA, "%s: row group %zu has %s rows than the %llu in the footer", c->file->path, c->group,
         c->row < group_end(c) ? "fewer" : "more", (unsigned long long)g->num_rows);
}

/* Moves on to the next row, if need be in the next row group, and checks that it starts here. */
static enum status ensure_row(struct parquet_column *c)
{
    bool at_end = false;
    while (!c->started || c->row == group_end(c)) {
        size_t next = c->started ? c->group + 1 : 0;
        if (next == c->file->num_groups) BUG("row out of range");
        start_group(c, next);
    }
    TRY(ensure_entry(c, &at_end));
    if (at_end) return fail_row_count(c);
    if (!starts_row(c, c->entry))
        FAIL(DATA, "%s: row %llu does not start at a row boundary", c->file->path,
             (unsigned long long)c->row);
    return STATUS_OK;
}

static void advance(struct parquet_column *c)
{
    bool has_value = !c->leaf->max_def || c->def[c->entry] == c->leaf->max_def;
    c->row += starts_row(c, c->entry);
    c->value += has_value;
    c->entry++;
}

enum status parquet_column_next(struct parquet_column *c, struct column_entry *e)
{
    if (c->entry == c->count || starts_row(c, c->entry)) TRY(ensure_row(c));
    size_t i = c->entry, v = c->value;
    *e = (struct column_entry){.rep = c->leaf->max_rep ? c->rep[i] : 0,
                               .def = c->leaf->max_def ? c->def[i] : 0};
    e->has_value = e->def == c->leaf->max_def;
    e->is_null_item = !e->has_value && c->leaf->max_rep && e->def >= c->leaf->list_def;
    advance(c);
    if (!e->has_value) return STATUS_OK;
    if (c->values.bytes)
        e->bytes = c->values.bytes[v];
    else
        e->number = c->values.numbers[v];
    return STATUS_OK;
}

enum status parquet_column_has_more(struct parquet_column *c, bool *more)
{
    bool at_end;
    *more = false;
    if (c->entry == c->count) {
        /* a list may continue in the next page, and the last row must end the chunk */
        if (!c->leaf->max_rep && c->row < group_end(c)) return STATUS_OK;
        TRY(ensure_entry(c, &at_end));
        if (at_end) return c->row == group_end(c) ? STATUS_OK : fail_row_count(c);
    }
    *more = !starts_row(c, c->entry);
    return *more || c->row < group_end(c) ? STATUS_OK : fail_row_count(c);
}

static size_t find_group(const struct parquet *p, uint64_t row)
{
    size_t low = 0, high = p->num_groups;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(p->groups[middle].first_row <= row ? &low : &high) = middle;
    }
    return low;
}

/* Skips pages that end before the row, according to their headers. */
static enum status skip_pages(struct parquet_column *c, uint64_t row)
{
    struct page_header h;
    bool at_end;
    for (;;) {
        TRY(read_next_data_header(c, &h, &at_end));
        if (at_end) return fail_row_count(c);
        int64_t rows = c->leaf->max_rep ? h.rows : h.values;
        if (rows < 0 || c->row + (uint64_t)rows > row) return read_page(c, &h);
        c->row += (uint64_t)rows;
        c->values_read += (uint64_t)h.values;
    }
}

enum status parquet_column_seek(struct parquet_column *c, uint64_t row)
{
    if (row >= c->file->num_rows) BUG("row out of range");
    size_t group = find_group(c->file, row);
    if (!c->started || c->group != group || row < c->row) start_group(c, group);
    for (;;) {
        while (c->entry < c->count && (c->row < row || !starts_row(c, c->entry))) advance(c);
        if (c->entry < c->count) return STATUS_OK;
        /* a v1 page of lists may continue the previous row, so it has to be decompressed */
        TRY(skip_pages(c, row));
    }
}

/* A range of the row group, sized by its average bytes per row. */
static uint64_t split_group(const struct parquet_column *c, uint64_t row, uint64_t *bytes)
{
    enum { PARTS = 8 };
    const struct parquet_group *g = &c->file->groups[c->group];
    uint64_t uncompressed = chunk_of(c)->uncompressed_bytes;
    double part = uncompressed ? (double)*bytes / (double)uncompressed : 1;
    if (part < 1.0 / PARTS) part = 1.0 / PARTS;
    uint64_t rows = part < 1 ? (uint64_t)(part * (double)g->num_rows) + 1 : g->num_rows;
    uint64_t end = group_end(c) - row < rows ? group_end(c) : row + rows;
    *bytes = (uint64_t)((double)uncompressed * (double)(end - row) / (double)g->num_rows);
    return end;
}

uint64_t parquet_column_range_end(struct parquet_column *c, uint64_t row, uint64_t *bytes)
{
    uint64_t skipped = 0, target = *bytes;
    size_t group = find_group(c->file, row);
    struct page_header h;
    if (!c->started || c->group != group || row < c->row) start_group(c, group);
    while (skipped < target && c->row < group_end(c) && c->values_read < chunk_of(c)->num_values) {
        if (read_page_header(c, &h)) break; /* reading the page reports the error */
        if (h.type != PAGE_DATA && h.type != PAGE_DATA_V2) continue;
        int64_t rows = c->leaf->max_rep ? h.rows : h.values;
        if (rows < 0) {
            c->started = false;
            return split_group(c, row, bytes);
        }
        c->row += (uint64_t)rows;
        c->values_read += (uint64_t)h.values;
        if (c->row > row) skipped += (uint64_t)h.uncompressed;
    }
    *bytes = skipped;
    if (skipped >= target && c->row < group_end(c)) return c->row;
    c->started = false;
    return group_end(c);
}
