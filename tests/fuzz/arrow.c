/* arrow.c -- fuzzes the Arrow reader: any bytes must yield rows or a clean error.  The last byte
 * selects the column, the others are the file. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

struct sum {
    uint64_t entries, total;
};

/* Aborts very long rows: lists of nulls take no bytes. */
static enum status add_entry(void *context, const struct column_entry *e)
{
    struct sum *s = context;
    if (s->entries++ > 1 << 16) FAIL(DATA, "row too long");
    s->total += (uint64_t)e->number;
    for (size_t i = 0; i < e->bytes.len; i += 1 + i / 8) s->total += e->bytes.data[i];
    return STATUS_OK;
}

/* Ranges must not be empty and must reach the end. */
static void check_ranges(const struct arrow *a)
{
    for (uint64_t row = 0, ranges = 0; row < a->num_rows && ranges < 64; ranges++) {
        uint64_t size = 32, end = arrow_range_end(a, row, &size);
        BUG_IF(end <= row || end > a->num_rows);
        row = end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const char *const columns[] = {"text", "files[].text", "spike_counts", "input_ids",
                                          "ids_view"};
    if (!len) return 0;
    struct arrow a = {.path = heap_string("input", 5)};
    struct arrow_reader r;
    struct sum s = {0};
    arrow_reader_init(&r, &a);
    if (!arrow_parse(&a, bytes, len - 1, columns[bytes[len - 1] % 5])) {
        for (uint64_t row = 0; row < a.num_rows && row < 256; row++)
            if (arrow_reader_visit_row(&r, row, add_entry, &s)) break;
        check_ranges(&a);
    }
    arrow_reader_release(&r);
    arrow_close(&a);
    return 0;
}
