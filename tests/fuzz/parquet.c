/* parquet.c -- any bytes as a Parquet file: rows, or a clear refusal, and nothing else.
 *
 * A row that is sought must be the one found on the way from the start. */
// SPDX-License-Identifier: Apache-2.0
#include "data/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { MOST_ENTRIES = 1 << 16 };

/* Entries of the next row, all bytes of which are there to be read. */
static enum status read_row(struct parquet_column *c, uint64_t *entries, uint32_t *sum)
{
    struct parquet_entry e;
    for (bool more = true; more && *entries < MOST_ENTRIES; ++*entries) {
        TRY(parquet_column_next(c, &e));
        *sum = *sum * 31 + (uint32_t)(e.rep + e.def + e.number);
        for (size_t i = 0; i < e.bytes.len; i += 1 + i / 8) *sum = *sum * 31 + e.bytes.data[i];
        TRY(parquet_column_goes_on(c, &more));
    }
    return STATUS_OK;
}

static void read_leaf(const struct parquet *p, size_t leaf)
{
    struct parquet_column straight, sought;
    uint64_t entries = 0, row = 0;
    parquet_column_init(&straight, p, leaf);
    for (; row < p->num_rows && entries < MOST_ENTRIES; row++) {
        uint64_t before = entries, again = 0;
        uint32_t sum = 0, other = 0;
        if (read_row(&straight, &entries, &sum)) break;
        if (row % 5 != 3 || entries >= MOST_ENTRIES) continue;
        parquet_column_init(&sought, p, leaf);
        enum status st = parquet_column_seek(&sought, row);
        if (!st) st = read_row(&sought, &again, &other);
        /* of lists, pages that were stepped over may not say the truth of themselves */
        BUG_IF(!p->leaves[leaf].max_rep && (st || other != sum || again != entries - before));
        parquet_column_release(&sought);
    }
    parquet_column_release(&straight);
}

/* Ranges that lead to the end, none of them empty. */
static void cut(const struct parquet *p, size_t leaf)
{
    struct parquet_column c;
    parquet_column_init(&c, p, leaf);
    for (uint64_t row = 0, ranges = 0; row < p->num_rows && ranges < 64; ranges++) {
        uint64_t bytes = 32, end = parquet_column_ahead(&c, row, &bytes);
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
        t.file.map = (struct file_map){bytes, len};
        for (size_t leaf = 0; leaf < t.file.num_leaves && leaf < 16; leaf++) {
            read_leaf(&t.file, leaf);
            cut(&t.file, leaf);
        }
        read_documents(&t, "text");
        read_documents(&t, "files[].text");
        read_documents(&t, "ids");
        read_documents(&t, "counts");
        t.file.map = (struct file_map){0}; /* the fuzzer's, not to be unmapped */
    }
    parquet_close(&t.file);
    return 0;
}
