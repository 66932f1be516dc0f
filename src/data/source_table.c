/* source_table.c -- .parquet and .arrow files: a document per row of one column, at the row's
 * number (table.h). */
// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

/* Doubles the capacity at powers of two. */
static void add_row(struct source_file *f, uint64_t row)
{
    if ((f->num_rows & (f->num_rows - 1)) == 0)
        f->rows = heap_grow(f->rows, f->num_rows ? 2 * f->num_rows : 1, sizeof *f->rows);
    f->rows[f->num_rows++] = row;
}

/* Collects the rows whose text in filter_column is filter_value. */
static enum status filter_rows(const struct source_config *c, struct source_file *f)
{
    struct table table = {0};
    struct table_reader *reader = NULL;
    struct text value = {0};
    size_t len = strlen(c->filter_value);
    enum status st = STATUS_OK;
    TRY_OUT(table_open(&table, f->path, c->filter_column));
    if (table.kind != TABLE_TEXT)
        FAIL_OUT(CONFIG, "%s: %s = \"%s\": expected a column of text", f->path,
                 source_kind_option(c, "filter_column").key, c->filter_column);
    f->rows = heap(sizeof *f->rows); /* not NULL without rows */
    f->num_rows = 0;
    table_reader_open(&reader, &table);
    for (uint64_t row = 0; row < table.num_rows; row++) { /* num_rows is only what the file says */
        TRY_OUT(table_read(reader, row, &value));
        if (value.len == len && !memcmp(value.data, c->filter_value, len)) add_row(f, row);
    }
    TRY_OUT(table_check(&table));
out:
    table_reader_close(reader);
    table_close(&table);
    text_release(&value);
    return st;
}

/* The row at a position of the file, and the first position whose row is not below `row`. */
static uint64_t row_at(const struct source_file *f, uint64_t position)
{
    return f->rows ? f->rows[position] : position;
}

static uint64_t position_of(const struct source_file *f, uint64_t row)
{
    uint64_t low = 0, high = f->num_rows;
    if (!f->rows) return row;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (f->rows[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status rows_open(struct source *s, struct source_file *f, uint64_t *size)
{
    const char *column = s->config->column;
    f->rows = NULL;
    TRY(table_open(&f->table, f->path, column));
    f->num_rows = f->table.num_rows;
    if (source_kind_filters(s->config)) TRY(filter_rows(s->config, f));
    const struct table *first = &s->files[0].table;
    bool counts = f->table.kind == TABLE_COUNTS;
    if (table_holds_ids(first) != table_holds_ids(&f->table) ||
        (first->kind == TABLE_COUNTS) != counts)
        FAIL(CONFIG,
             "%s: the files of a source must all hold text, all token IDs or all spike counts",
             f->path);
    s->holds_ids = table_holds_ids(&f->table);
    if (s->motifs && f->table.kind != TABLE_COUNTS)
        FAIL(CONFIG, "%s: %s requires spike counts, but column \"%s\" holds none", f->path,
             source_kind_option(s->config, "motifs").key, column);
    f->table.motifs = s->motifs, f->table.neurons = source_kind_neurons(s->config);
    s->num_positions += f->num_rows;
    *size = f->table.size;
    return STATUS_OK;
}

static enum status rows_check(const struct source_file *f) { return table_check(&f->table); }

static void rows_close(struct source_file *f)
{
    table_close(&f->table);
    free(f->rows);
}

static void open_reader(const struct source *s, struct source_reader *r, size_t file)
{
    if (r->table && r->file == file) return;
    source_reader_close(r);
    r->file = file;
    table_reader_open(&r->table, &s->files[file].table);
}

static enum status rows_find(const struct source *s, struct source_reader *r,
                             struct source_range *c, struct source_document *d, bool *none)
{
    for (*none = true; *none && c->position < c->end; ++c->position) {
        size_t i = source_file_at(s, c->position);
        uint64_t row = row_at(&s->files[i], c->position - s->files[i].first_position);
        open_reader(s, r, i);
        source_kind_clear(&d->text);
        enum status st = table_read(r->table, row, &d->text);
        if (st != STATUS_RECORD) TRY(st);
        *d = (struct source_document){c->position, i, row, d->text.len, d->text, false};
        if (s->holds_ids) d->len /= sizeof(int32_t);
        if (st) source_kind_set_bad(d);
        *none = !d->len;
    }
    return STATUS_OK;
}

static uint64_t rows_range_end(const struct source *s, struct source_reader *r, uint64_t position,
                               uint64_t *bytes)
{
    size_t i = source_file_at(s, position);
    const struct source_file *f = &s->files[i];
    open_reader(s, r, i);
    uint64_t end = table_range_end(r->table, row_at(f, position - f->first_position), bytes);
    return f->first_position + position_of(f, end);
}

static enum status rows_text(const struct source *s, const struct source_document *d,
                             struct source_tokens *t, struct document_text *out)
{
    (void)t;
    *out = (struct document_text){d->text.data, d->text.len, true, true};
    return source_kind_plain_text(s, d, out);
}

static enum status rows_ids(const struct source *s, const struct source_document *d,
                            const struct source_tokens *t, int32_t *ids)
{
    memcpy(ids, d->text.data, d->len * sizeof *ids);
    for (uint64_t i = 0; i < d->len; i++)
        if (t->vocab_size && ids[i] >= t->vocab_size)
            FAIL(RECORD, "%s: row %llu has token ID %d; the vocabulary size is %lld",
                 s->files[d->file].path, (unsigned long long)d->at, ids[i],
                 (long long)t->vocab_size);
    return STATUS_OK;
}

const struct source_kind source_table = {
    .suffixes = {".parquet", ".arrow"},
    .unit = "row",
    .seeks = true,
    .copies_text = true,
    .open = rows_open,
    .check = rows_check,
    .close = rows_close,
    .find = rows_find,
    .range_end = rows_range_end,
    .text = rows_text,
    .ids = rows_ids,
};
