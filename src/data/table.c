// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 30 };

struct table_reader {
    const struct table *table;
    struct parquet_column column, ahead;
    struct arrow_reader arrow;
    uint64_t next; /* the row the column stands at, if `placed` */
    bool placed;
    struct text counts; /* of a row, neuron by neuron */
    size_t neurons;
};

static const char *path_of(const struct table *t)
{
    return t->is_arrow ? t->arrow.path : t->file.path;
}

static enum status refuse_column(const struct table *t, const char *column)
{
    struct text there = {0};
    if (t->is_arrow)
        text_adds(&there, t->arrow.columns.data);
    else
        parquet_columns(&t->file, &there);
    enum status st = status_fail(
        STATUS_CONFIG, __FILE__, __LINE__,
        "%s: column \"%s\" holds neither text, nor lists of whole numbers, nor lists of lists of "
        "unsigned bytes; there are %s",
        path_of(t), column, there.data);
    text_release(&there);
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
        return refuse_column(t, column);
    return STATUS_OK;
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

enum status table_open(struct table *t, const char *path, const char *column)
{
    *t = (struct table){.is_arrow = ends_in(path, ".arrow")};
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

uint64_t table_ahead(struct table_reader *r, uint64_t row, uint64_t *bytes)
{
    if (r->table->is_arrow) return arrow_ahead(&r->table->arrow, row, bytes);
    return parquet_column_ahead(&r->ahead, row, bytes);
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

static void add_id(struct text *out, int32_t id) { text_add(out, &id, sizeof id); }

static enum status add_entry(struct table_reader *r, uint64_t row, const struct parquet_entry *e,
                             struct text *out)
{
    const char *path = path_of(r->table);
    if (!e->has_value) return STATUS_OK;
    if (out->len + r->counts.len + e->bytes.len > LONGEST)
        FAIL(DATA, "%s, row %llu: a document of more than %d bytes", path, (unsigned long long)row,
             LONGEST);
    switch (r->table->kind) {
    case TABLE_JOINED: text_adds(out, "\n\n"); /* fall through */
    case TABLE_TEXT: text_add(out, e->bytes.data, e->bytes.len); break;
    case TABLE_IDS:
        if (e->number < 0 || e->number > INT32_MAX)
            FAIL(DATA, "%s, row %llu: the id %lld", path, (unsigned long long)row,
                 (long long)e->number);
        add_id(out, (int32_t)e->number);
        break;
    case TABLE_COUNTS: text_add(&r->counts, &(char){(char)e->number}, 1); break;
    }
    return STATUS_OK;
}

static enum status add_motifs(const struct table_reader *r, uint64_t row, size_t neurons,
                              size_t bins, struct text *out)
{
    const struct table *t = r->table;
    struct motif_session s = {.counts = (const unsigned char *)r->counts.data,
                              .neurons = neurons,
                              .bins = bins,
                              .width = t->motif_neurons,
                              .number = row};
    if (motifs_length(t->motifs, &s) > LONGEST / sizeof(int32_t))
        FAIL(DATA, "%s, row %llu: %zu bins as motifs of %zu neurons are too many", path_of(t),
             (unsigned long long)row, bins, s.width);
    motifs_encode(t->motifs, &s, out);
    return STATUS_OK;
}

/* Counts of `neurons` of equally many bins each, turned round. */
static enum status add_bins(const struct table_reader *r, uint64_t row, size_t neurons,
                            struct text *out)
{
    const unsigned char *counts = (const unsigned char *)r->counts.data;
    size_t bins = neurons ? r->counts.len / neurons : 0;
    if (r->table->motifs && bins) return add_motifs(r, row, neurons, bins, out);
    if ((neurons + 1) * bins > LONGEST / sizeof(int32_t))
        FAIL(DATA, "%s, row %llu: %zu neurons of %zu bins are too many", path_of(r->table),
             (unsigned long long)row, neurons, bins);
    text_reserve(out, (neurons + 1) * bins * sizeof(int32_t));
    for (size_t b = 0; b < bins; b++) {
        add_id(out, TABLE_BIN);
        for (size_t n = 0; n < neurons; n++) add_id(out, counts[n * bins + b]);
    }
    return STATUS_OK;
}

/* A row under way; lists within it must all be as long as the first. */
struct row {
    struct table_reader *reader;
    uint64_t number;
    struct text *out;
    size_t lists, first, here; /* begun; values of the first and of this one */
    bool uneven;
};

static void next_list(struct row *r)
{
    if (r->lists == 1) r->first = r->here;
    if (r->lists > 1 && r->here != r->first) r->uneven = true;
    r->here = 0;
    r->lists++;
}

static enum status take_entry(void *context, const struct parquet_entry *e)
{
    struct row *r = context;
    if (e->rep < 2) next_list(r);
    r->here += e->has_value;
    return add_entry(r->reader, r->number, e, r->out);
}

static enum status read_parquet(struct table_reader *r, struct row *row)
{
    struct parquet_entry e;
    if (!r->placed || r->next != row->number) TRY(parquet_column_seek(&r->column, row->number));
    r->placed = false; /* after a failure it stands anywhere */
    for (bool more = true; more;) {
        TRY(parquet_column_next(&r->column, &e));
        TRY(take_entry(row, &e));
        TRY(parquet_column_goes_on(&r->column, &more));
    }
    r->placed = true;
    r->next = row->number + 1;
    return STATUS_OK;
}

enum status table_read(struct table_reader *r, uint64_t number, struct text *out)
{
    struct row row = {.reader = r, .number = number, .out = out};
    text_clear(out);
    text_clear(&r->counts);
    if (r->table->is_arrow)
        TRY(arrow_reader_row(&r->arrow, number, take_entry, &row));
    else
        TRY(read_parquet(r, &row));
    if (r->table->kind != TABLE_COUNTS) return STATUS_OK;
    size_t neurons = row.lists;
    next_list(&row);
    if (row.uneven)
        FAIL(DATA, "%s, row %llu: its lists are not of one length", path_of(r->table),
             (unsigned long long)number);
    r->neurons = neurons;
    return add_bins(r, number, neurons, out);
}
