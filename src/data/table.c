// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 30 };

struct table_reader {
    const struct table *table;
    struct parquet_column column;
    uint64_t next; /* the row the column stands at, if `placed` */
    bool placed;
    struct text counts; /* of a row, neuron by neuron */
};

static enum status choose_kind(struct table *r, const char *column)
{
    const struct parquet_leaf *leaf = &r->file.leaves[r->leaf];
    bool whole = leaf->type == PARQUET_I32 || leaf->type == PARQUET_I64;
    if (leaf->type == PARQUET_BYTES)
        r->kind = leaf->max_rep ? TABLE_JOINED : TABLE_TEXT;
    else if (whole && leaf->max_rep == 1)
        r->kind = TABLE_IDS;
    else if (leaf->is_u8 && leaf->max_rep == 2)
        r->kind = TABLE_COUNTS;
    else
        FAIL(CONFIG,
             "%s: column \"%s\" holds neither text, nor lists of whole numbers, nor lists of lists "
             "of unsigned bytes",
             r->file.path, column);
    return STATUS_OK;
}

enum status table_open(struct table *r, const char *path, const char *column)
{
    *r = (struct table){0};
    TRY(parquet_open(&r->file, path));
    enum status st = STATUS_OK;
    TRY_OUT(parquet_find(&r->file, column, &r->leaf));
    TRY_OUT(choose_kind(r, column));
out:
    if (st) table_close(r);
    return st;
}

void table_close(struct table *r)
{
    parquet_close(&r->file);
    *r = (struct table){0};
}

void table_reader_open(struct table_reader **out, const struct table *r)
{
    *out = heap(sizeof **out);
    (*out)->table = r;
    parquet_column_init(&(*out)->column, &r->file, r->leaf);
}

void table_reader_close(struct table_reader *r)
{
    if (!r) return;
    parquet_column_release(&r->column);
    text_release(&r->counts);
    free(r);
}

size_t table_reader_bytes(const struct table_reader *r)
{
    return parquet_column_bytes(&r->column) + r->counts.capacity;
}

static void add_id(struct text *out, int32_t id) { text_add(out, &id, sizeof id); }

static enum status add_entry(struct table_reader *r, uint64_t row, const struct parquet_entry *e,
                             struct text *out)
{
    const char *path = r->table->file.path;
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

/* Counts of `neurons` of equally many bins each, turned round. */
static enum status add_bins(const struct table_reader *r, uint64_t row, size_t neurons,
                            struct text *out)
{
    const unsigned char *counts = (const unsigned char *)r->counts.data;
    size_t bins = neurons ? r->counts.len / neurons : 0;
    if ((neurons + 1) * bins > LONGEST / sizeof(int32_t))
        FAIL(DATA, "%s, row %llu: %zu neurons of %zu bins are too many", r->table->file.path,
             (unsigned long long)row, neurons, bins);
    text_reserve(out, (neurons + 1) * bins * sizeof(int32_t));
    for (size_t b = 0; b < bins; b++) {
        add_id(out, TABLE_BIN);
        for (size_t n = 0; n < neurons; n++) add_id(out, counts[n * bins + b]);
    }
    return STATUS_OK;
}

/* Lists within the row, each of which must be as long as the one before. */
struct lists {
    size_t count, first, here;
};

static bool next_list(struct lists *l)
{
    if (l->count == 1) l->first = l->here;
    bool same = l->count < 2 || l->here == l->first;
    l->here = 0;
    l->count++;
    return same;
}

static enum status read_row(struct table_reader *r, uint64_t row, struct text *out)
{
    struct lists lists = {0};
    struct parquet_entry e;
    bool same = true;
    for (bool more = true; more;) {
        TRY(parquet_column_next(&r->column, &e));
        if (e.rep < 2) same &= next_list(&lists);
        lists.here += e.has_value;
        TRY(add_entry(r, row, &e, out));
        TRY(parquet_column_goes_on(&r->column, &more));
    }
    if (r->table->kind != TABLE_COUNTS) return STATUS_OK;
    size_t neurons = lists.count;
    if (!next_list(&lists) || !same)
        FAIL(DATA, "%s, row %llu: its lists are not of one length", r->table->file.path,
             (unsigned long long)row);
    return add_bins(r, row, neurons, out);
}

enum status table_read(struct table_reader *r, uint64_t row, struct text *out)
{
    text_clear(out);
    text_clear(&r->counts);
    if (!r->placed || r->next != row) TRY(parquet_column_seek(&r->column, row));
    r->placed = false; /* after a failure it stands anywhere */
    TRY(read_row(r, row, out));
    r->placed = true;
    r->next = row + 1;
    return STATUS_OK;
}
