// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"

#include "base/file.h"
#include "formats/arrow_schema.h"

#include <stdlib.h>

enum { MAX_DOCUMENT_BYTES = 1 << 30 };

struct table_reader {
    const struct table *table;
    struct parquet_column column, ahead;
    struct arrow_reader arrow;
    uint64_t next_row; /* the row that `column` is at, if is_positioned */
    bool is_positioned;
    struct text counts; /* of one row, neuron by neuron */
    size_t neurons;
};

static const char *path_of(const struct table *t)
{
    return t->is_arrow ? t->arrow.path : t->file.path;
}

/* Appends "lists of integers", for example. */
static void add_type(struct text *out, const struct table *t)
{
    static const char *const names[PARQUET_TYPES] = {[PARQUET_BOOL] = "booleans",
                                                     [PARQUET_I32] = "integers",
                                                     [PARQUET_I64] = "integers",
                                                     [PARQUET_I96] = "timestamps (INT96)",
                                                     [PARQUET_BYTES] = "text",
                                                     [PARQUET_F32] = "floating-point numbers",
                                                     [PARQUET_F64] = "floating-point numbers",
                                                     [PARQUET_FIXED] = "fixed-size binary"};
    const struct parquet_leaf *leaf = t->is_arrow ? NULL : &t->file.leaves[t->leaf];
    int lists = leaf ? leaf->max_rep : t->arrow.num_lists;
    for (int i = 0; i < lists; i++) text_adds(out, "lists of ");
    text_adds(out,
              leaf ? names[leaf->type] : arrow_schema_type_name(t->arrow.dictionary_values.type));
}

static enum status fail_column_type(const struct table *t, const char *column)
{
    struct text type = {0}, columns = {0};
    add_type(&type, t);
    if (t->is_arrow)
        text_adds(&columns, t->arrow.columns.data);
    else
        parquet_list_columns(&t->file, &columns);
    enum status st = FAILURE(
        CONFIG,
        "%s: column \"%s\" holds %s: expected text, lists of text, lists of integers or lists of "
        "lists of uint8; the columns are %s",
        path_of(t), column, type.data, columns.data);
    text_release(&type), text_release(&columns);
    return st;
}

static enum status choose_kind(struct table *t, const char *column)
{
    const struct parquet_leaf *leaf = t->is_arrow ? NULL : &t->file.leaves[t->leaf];
    const struct arrow *a = &t->arrow;
    bool text = leaf ? leaf->type == PARQUET_BYTES : a->is_text;
    bool u8 = leaf ? leaf->is_u8 : a->is_u8;
    bool whole = leaf ? leaf->type == PARQUET_I32 || leaf->type == PARQUET_I64 : a->is_integer;
    int lists = leaf ? leaf->max_rep : a->num_lists;
    if (text)
        t->kind = lists ? TABLE_JOINED : TABLE_TEXT;
    else if (whole && lists == 1)
        t->kind = TABLE_IDS;
    else if (u8 && lists == 2)
        t->kind = TABLE_COUNTS;
    else
        return fail_column_type(t, column);
    return STATUS_OK;
}

enum status table_open(struct table *t, const char *path, const char *column)
{
    *t = (struct table){.is_arrow = file_has_suffix(path, ".arrow")};
    enum status st = STATUS_OK;
    if (t->is_arrow) {
        TRY_OUT(arrow_open(&t->arrow, path, column));
        t->num_rows = t->arrow.num_rows, t->size = t->arrow.map.size;
    } else {
        TRY_OUT(parquet_open(&t->file, path));
        TRY_OUT(parquet_find(&t->file, column, &t->leaf));
        t->num_rows = t->file.num_rows, t->size = t->file.map.size;
    }
    TRY_OUT(choose_kind(t, column));
out:
    if (st) table_close(t);
    return st;
}

enum status table_check(const struct table *t)
{
    return file_map_check(t->is_arrow ? &t->arrow.map : &t->file.map);
}

void table_close(struct table *t)
{
    arrow_close(&t->arrow);
    parquet_close(&t->file);
    *t = (struct table){0};
}

void table_reader_open(struct table_reader **out, const struct table *r)
{
    *out = heap(sizeof **out);
    (*out)->table = r;
    arrow_reader_init(&(*out)->arrow, &r->arrow);
    if (r->is_arrow) return;
    parquet_column_init(&(*out)->column, &r->file, r->leaf);
    parquet_column_init(&(*out)->ahead, &r->file, r->leaf);
}

void table_reader_close(struct table_reader *r)
{
    if (!r) return;
    parquet_column_release(&r->column), parquet_column_release(&r->ahead);
    arrow_reader_release(&r->arrow);
    text_release(&r->counts);
    free(r);
}

size_t table_reader_bytes(const struct table_reader *r)
{
    return parquet_column_bytes(&r->column) + arrow_reader_bytes(&r->arrow) + r->counts.capacity;
}

uint64_t table_range_end(struct table_reader *r, uint64_t row, uint64_t *bytes)
{
    if (r->table->is_arrow) return arrow_range_end(&r->table->arrow, row, bytes);
    return parquet_column_range_end(&r->ahead, row, bytes);
}

uint64_t table_mean_bytes(const struct table *t)
{
    uint64_t values = 0;
    if (t->is_arrow || !table_holds_ids(t) || !t->num_rows) return 0;
    for (size_t g = 0; g < t->file.num_groups; g++)
        values += t->file.groups[g].chunks[t->leaf].num_values;
    return values / t->num_rows * sizeof(int32_t);
}

size_t table_reader_neurons(const struct table_reader *r) { return r->neurons; }

static void append_id(struct text *out, int32_t id) { text_add(out, &id, sizeof id); }

static enum status append_entry(struct table_reader *r, uint64_t row, const struct column_entry *e,
                                struct text *out)
{
    const char *path = path_of(r->table);
    if (e->is_null_item && r->table->kind == TABLE_IDS)
        FAIL(RECORD, "%s, row %llu: its list of token IDs has a null", path,
             (unsigned long long)row);
    if (!e->has_value) return STATUS_OK;
    if (out->len + r->counts.len + e->bytes.len > MAX_DOCUMENT_BYTES)
        FAIL(RECORD, "%s, row %llu: the document is larger than %d bytes", path,
             (unsigned long long)row, MAX_DOCUMENT_BYTES);
    switch (r->table->kind) {
    case TABLE_JOINED: text_adds(out, "\n\n"); /* fall through */
    case TABLE_TEXT: text_add(out, e->bytes.data, e->bytes.len); break;
    case TABLE_IDS:
        if (e->number < 0 || e->number > INT32_MAX)
            FAIL(RECORD, "%s, row %llu: token ID %lld is out of range", path,
                 (unsigned long long)row, (long long)e->number);
        append_id(out, (int32_t)e->number);
        break;
    case TABLE_COUNTS: text_add(&r->counts, &(char){(char)e->number}, 1); break;
    }
    return STATUS_OK;
}

static enum status append_motifs(const struct table_reader *r, uint64_t row, size_t neurons,
                                 size_t bins, struct text *out)
{
    const struct table *t = r->table;
    struct motif_session s = {.counts = (const unsigned char *)r->counts.data,
                              .neurons = neurons,
                              .bins = bins,
                              .width = t->neurons ? t->neurons : neurons,
                              .number = row};
    if (motifs_length(t->motifs, &s) > MAX_DOCUMENT_BYTES / sizeof(int32_t))
        FAIL(RECORD, "%s, row %llu: %zu bins as motifs of %zu neurons exceed 1 GiB", path_of(t),
             (unsigned long long)row, bins, s.width);
    motifs_encode(t->motifs, &s, out);
    return STATUS_OK;
}

/* Transposes the counts from [neuron][bin] to bins, each after a separator. */
static enum status append_bins(struct table_reader *r, uint64_t row, size_t neurons,
                               struct text *out)
{
    const unsigned char *counts = (const unsigned char *)r->counts.data;
    size_t bins = neurons ? r->counts.len / neurons : 0;
    size_t width = r->table->neurons && neurons ? r->table->neurons : neurons;
    size_t first = motifs_first_neuron(neurons, width, row);
    r->neurons = r->table->motifs ? neurons : width;
    if (r->table->motifs && bins) return append_motifs(r, row, neurons, bins, out);
    if ((width + 1) * bins > MAX_DOCUMENT_BYTES / sizeof(int32_t))
        FAIL(RECORD, "%s, row %llu: %zu neurons of %zu bins exceed 1 GiB", path_of(r->table),
             (unsigned long long)row, width, bins);
    text_reserve(out, (width + 1) * bins * sizeof(int32_t));
    for (size_t b = 0; b < bins; b++) {
        append_id(out, TABLE_BIN_SEPARATOR);
        for (size_t n = 0; n < width; n++) append_id(out, counts[(first + n % neurons) * bins + b]);
    }
    return STATUS_OK;
}

/* Collects the entries of a row; its inner lists must all have the length of the first. */
struct row_builder {
    struct table_reader *reader;
    uint64_t number;
    struct text *out;
    size_t lists;                     /* begun */
    size_t first_length, list_length; /* values of the first and of the current one */
    bool uneven;
};

static void next_list(struct row_builder *r)
{
    if (r->lists == 1) r->first_length = r->list_length;
    if (r->lists > 1 && r->list_length != r->first_length) r->uneven = true;
    r->list_length = 0;
    r->lists++;
}

static enum status on_entry(void *context, const struct column_entry *e)
{
    struct row_builder *r = context;
    if (e->rep < 2) next_list(r);
    r->list_length += e->has_value;
    return append_entry(r->reader, r->number, e, r->out);
}

static enum status read_parquet(struct table_reader *r, struct row_builder *row)
{
    struct column_entry e;
    if (!r->is_positioned || r->next_row != row->number)
        TRY(parquet_column_seek(&r->column, row->number));
    r->is_positioned = false; /* a failure leaves it anywhere */
    for (bool more = true; more;) {
        TRY(parquet_column_next(&r->column, &e));
        TRY(on_entry(row, &e));
        TRY(parquet_column_has_more(&r->column, &more));
    }
    r->is_positioned = true;
    r->next_row = row->number + 1;
    return STATUS_OK;
}

enum status table_read(struct table_reader *r, uint64_t number, struct text *out)
{
    struct row_builder row = {.reader = r, .number = number, .out = out};
    text_clear(out);
    text_clear(&r->counts);
    if (r->table->is_arrow)
        TRY(arrow_reader_visit_row(&r->arrow, number, on_entry, &row));
    else
        TRY(read_parquet(r, &row));
    if (r->table->kind != TABLE_COUNTS) return STATUS_OK;
    size_t neurons = row.lists;
    next_list(&row);
    if (row.uneven)
        FAIL(RECORD, "%s, row %llu: its lists differ in length", path_of(r->table),
             (unsigned long long)number);
    return append_bins(r, number, neurons, out);
}
