/* parquet.c -- fuzzes the Parquet reader: any bytes must yield rows or a clean error.
 *
 * Seeking to a row must yield the same entries as a sequential read. */
// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { MAX_ENTRIES = 1 << 16 };

/* Reads all entries of the next row, and touches their bytes. */
static enum status read_row(struct parquet_column *c, uint64_t *entries, uint32_t *sum)
{
    struct column_entry e;
    for (bool more = true; more && *entries < MAX_ENTRIES; ++*entries) {
        TRY(parquet_column_next(c, &e));
        *sum = *sum * 31 + (uint32_t)(e.rep + e.def + e.number);
        for (size_t i = 0; i < e.bytes.len; i += 1 + i / 8) *sum = *sum * 31 + e.bytes.data[i];
        TRY(parquet_column_has_more(c, &more));
    }
    return STATUS_OK;
}

static void read_leaf(const struct parquet *p, size_t leaf)
{
    struct parquet_column sequential, sought;
    uint64_t entries = 0, row = 0;
    parquet_column_init(&sequential, p, leaf);
    for (; row < p->num_rows && entries < MAX_ENTRIES; row++) {
        uint64_t before = entries, again = 0;
        uint32_t sum = 0, other = 0;
        if (read_row(&sequential, &entries, &sum)) break;
        if (row % 5 != 3 || entries >= MAX_ENTRIES) continue;
        parquet_column_init(&sought, p, leaf);
        enum status st = parquet_column_seek(&sought, row);
        if (!st) st = read_row(&sought, &again, &other);
        /* for lists, a corrupt page header can misstate the rows of a skipped page */
        BUG_IF(!p->leaves[leaf].max_rep && (st || other != sum || again != entries - before));
        parquet_column_release(&sought);
    }
    parquet_column_release(&sequential);
}

/* Ranges must not be empty and must reach the end. */
static void check_ranges(const struct parquet *p, size_t leaf)
{
    struct parquet_column c;
    parquet_column_init(&c, p, leaf);
    for (uint64_t row = 0, ranges = 0; row < p->num_rows && ranges < 64; ranges++) {
        uint64_t bytes = 32, end = parquet_column_range_end(&c, row, &bytes);
        BUG_IF(end <= row || end > p->num_rows);
        row = end;
    }
    parquet_column_release(&c);
}

static void read_documents(struct table *t, const char *column)
{
    struct table_reader *reader;
    struct text out = {0};
    if (parquet_find(&t->file, column, &t->leaf)) return;
    enum parquet_type type = t->file.leaves[t->leaf].type;
    bool is_text = type == PARQUET_BYTES;
    if (!is_text && type != PARQUET_I32 && type != PARQUET_I64) return;
    int depth = t->file.leaves[t->leaf].max_rep;
    t->kind = is_text ? (depth ? TABLE_JOINED : TABLE_TEXT) : depth > 1 ? TABLE_COUNTS : TABLE_IDS;
    table_reader_open(&reader, t);
    for (uint64_t row = 0; row < t->file.num_rows && row < 64; row++)
        if (table_read(reader, row, &out)) break;
    table_reader_close(reader);
    text_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct table t = {.file = {.path = heap_string("input", 5)}};
    if (!parquet_parse(&t.file, bytes, len)) {
        t.file.map = (struct file_map){.data = bytes, .size = len};
        for (size_t leaf = 0; leaf < t.file.num_leaves && leaf < 16; leaf++) {
            read_leaf(&t.file, leaf);
            check_ranges(&t.file, leaf);
        }
        read_documents(&t, "text");
        read_documents(&t, "files[].text");
        read_documents(&t, "ids");
        read_documents(&t, "counts");
        t.file.map = (struct file_map){0}; /* owned by the fuzzer: do not unmap */
    }
    parquet_close(&t.file);
    return 0;
}
