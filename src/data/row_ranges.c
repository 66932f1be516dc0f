// SPDX-License-Identifier: Apache-2.0
#include "data/row_ranges.h"

#include <stdlib.h>
#include <string.h>

void row_ranges_release(struct row_ranges *r)
{
    free(r->items);
    *r = (struct row_ranges){0};
}

void row_ranges_add(struct row_ranges *r, struct row_interval rows)
{
    size_t begin = 0, end;
    if (rows.begin >= rows.end) return;
    while (begin < r->count && r->items[begin].end < rows.begin) begin++;
    for (end = begin; end < r->count && r->items[end].begin <= rows.end; end++) {
        if (r->items[end].begin < rows.begin) rows.begin = r->items[end].begin;
        if (r->items[end].end > rows.end) rows.end = r->items[end].end;
    }
    r->items = heap_grow(r->items, r->count + 1, sizeof *r->items);
    memmove(r->items + begin + 1, r->items + end, (r->count - end) * sizeof *r->items);
    r->items[begin] = rows;
    r->count += 1 - (end - begin);
}

void row_ranges_add_part(struct row_ranges *r, const struct row_ranges *from,
                         struct row_interval part)
{
    for (size_t i = 0; i < from->count; i++) {
        struct row_interval x = from->items[i];
        if (x.begin < part.begin) x.begin = part.begin;
        if (x.end > part.end) x.end = part.end;
        row_ranges_add(r, x);
    }
}

uint64_t row_ranges_rows(const struct row_ranges *r)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < r->count; i++) rows += r->items[i].end - r->items[i].begin;
    return rows;
}

uint64_t row_ranges_outside(const struct row_ranges *r, uint64_t first, uint64_t n)
{
    uint64_t row = first + n;
    for (size_t i = 0; i < r->count; i++) {
        struct row_interval x = r->items[i];
        if (x.begin < first) x.begin = first;
        if (x.begin > row) break;
        if (x.begin < x.end) row += x.end - x.begin;
    }
    return row;
}

void row_ranges_write(const struct row_ranges *r, const char *key, struct json_writer *w)
{
    if (!r->count) return;
    json_begin_array(w, key, JSON_COMPACT);
    for (size_t i = 0; i < r->count; i++) {
        json_begin_array(w, NULL, JSON_COMPACT);
        json_write_int(w, NULL, (int64_t)r->items[i].begin);
        json_write_int(w, NULL, (int64_t)r->items[i].end - 1);
        json_end_array(w);
    }
    json_end_array(w);
}

enum status row_ranges_read(struct row_ranges *r, const struct json *list)
{
    enum { MAX_RANGES = 1 << 20 };
    int64_t first, last;
    row_ranges_release(r);
    if (!list) return STATUS_OK;
    if (!json_is_array(list) || json_count(list) > MAX_RANGES)
        FAIL(DATA, "the skipped rows must be a list of ranges");
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        const struct json *a = json_is_array(v) ? json_first(v) : NULL,
                          *b = a ? json_next(a) : NULL;
        if (!b || json_next(b) || !json_as_int(a, 0, JSON_MAX_INT, &first) ||
            !json_as_int(b, first, JSON_MAX_INT, &last))
            FAIL(DATA, "the skipped rows: each range must be two rows, the first and the last");
        row_ranges_add(r, (struct row_interval){(uint64_t)first, (uint64_t)last + 1});
    }
    return STATUS_OK;
}
