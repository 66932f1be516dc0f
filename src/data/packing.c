// SPDX-License-Identifier: Apache-2.0
#include "data/packing.h"

#include "base/heap.h"
#include "base/status.h"

#include <stdlib.h>

enum { MOST_KEPT = 1 << 14 }; /* pieces: larger arrays are freed between groups */

void packing_release(struct packing *p)
{
    free(p->pieces);
    p->pieces = NULL;
    p->num_pieces = p->capacity = p->num_rows = 0;
    p->tokens = p->tried_rows = 0;
}

void packing_clear(struct packing *p)
{
    if (p->capacity > MOST_KEPT) packing_release(p);
    p->num_pieces = p->num_rows = 0;
    p->tokens = p->tried_rows = 0;
}

static void add_piece(struct packing *p, const struct packing_piece *piece)
{
    if (p->num_pieces == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 64;
        p->pieces = heap_grow(p->pieces, p->capacity, sizeof *p->pieces);
    }
    p->pieces[p->num_pieces++] = *piece;
    p->tokens += piece->length;
}

void packing_add(struct packing *p, size_t at, size_t count, const struct packing_origin *origin)
{
    BUG_IF(p->row_tokens < 1u + p->overlap);
    for (size_t from = 0; count;) {
        size_t left = count - from, length = left < p->row_tokens ? left : p->row_tokens;
        add_piece(
            p, &(struct packing_piece){
                   .at = at + from, .offset = from, .length = (uint32_t)length, .origin = *origin});
        if (length == left) return;
        from += length - p->overlap;
    }
}

/* Whether at most 1 % of the rows remains empty. */
static bool is_full(const struct packing *p, uint64_t rows)
{
    uint64_t room = rows * p->row_tokens;
    return room - p->tokens <= room / 100;
}

bool packing_complete(struct packing *p)
{
    uint64_t rows = (p->tokens + p->row_tokens - 1) / p->row_tokens; /* at least */
    bool is_last = rows > PACKING_MOST_ROWS;
    if (!is_last && (rows < PACKING_LEAST_ROWS || rows == p->tried_rows || !is_full(p, rows)))
        return false;
    size_t packed = packing_best_fit(p->pieces, p->num_pieces, p->row_tokens);
    p->tried_rows = rows;
    if (rows < PACKING_MOST_ROWS && !is_full(p, packed)) return false;
    p->num_rows = packed;
    return true;
}

static int compare(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

static int by_length(const void *a, const void *b)
{
    const struct packing_piece *x = a, *y = b;
    int order = compare(y->length, x->length);
    return order ? order : compare(x->at, y->at);
}

static int by_row(const void *a, const void *b)
{
    const struct packing_piece *x = a, *y = b;
    int order = compare(x->row, y->row);
    return order ? order : compare(x->at, y->at);
}

void packing_reorder(struct packing *p, const uint32_t *order)
{
    for (size_t i = 0; i < p->num_pieces; i++) p->pieces[i].row = order[p->pieces[i].row];
    qsort(p->pieces, p->num_pieces, sizeof *p->pieces, by_row);
}

const struct packing_piece *packing_row(const struct packing *p, uint32_t row)
{
    size_t low = 0, high = p->num_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->pieces[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return p->pieces + low;
}

/* Groups of documents of 800 tokens have about 32 Ki tokens if rows are short, and a few rows if
 * they are long. */
int64_t packing_memory_bytes(int64_t row_tokens)
{
    int64_t usual = (32 << 10) + 8 * row_tokens, most = PACKING_MOST_ROWS * row_tokens;
    return (usual < most ? usual : most) * (int64_t)sizeof(int32_t);
}

/* The rows that are not full; there are few, as a group has few rows. */
struct open_rows {
    uint32_t *room; /* of each */
    size_t count, capacity;
};

static size_t open_row(struct open_rows *rows, uint32_t row_tokens)
{
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity ? 2 * rows->capacity : 64;
        rows->room = heap_grow(rows->room, rows->capacity, sizeof *rows->room);
    }
    rows->room[rows->count] = row_tokens;
    return rows->count++;
}

/* The fullest row with room for `length` tokens; rows->count: none. */
static size_t find_fullest(const struct open_rows *rows, uint32_t length)
{
    size_t best = rows->count;
    for (size_t r = 0; r < rows->count; r++)
        if (rows->room[r] >= length && (best == rows->count || rows->room[r] < rows->room[best]))
            best = r;
    return best;
}

size_t packing_best_fit(struct packing_piece *pieces, size_t count, uint32_t row_tokens)
{
    struct open_rows rows = {0};
    size_t full = 0; /* rows of one piece, which come first */
    if (count) qsort(pieces, count, sizeof *pieces, by_length);
    for (size_t i = 0; i < count; i++) {
        uint32_t length = pieces[i].length;
        if (length == row_tokens) {
            pieces[i].row = (uint32_t)full++;
            continue;
        }
        size_t r = find_fullest(&rows, length);
        if (r == rows.count) r = open_row(&rows, row_tokens);
        rows.room[r] -= length;
        pieces[i].row = (uint32_t)(full + r);
    }
    free(rows.room);
    return full + rows.count;
}
