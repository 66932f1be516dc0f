/* packing.h -- packs documents into rows, cutting only those longer than a row: data.packing =
 * "best_fit".
 *
 * Pieces   A document of at most `row_tokens` tokens is one piece.  A longer one is cut into pieces
 *          of row_tokens and a shorter last one; with `overlap` each piece but the first begins
 *          with the last token of the one before it, so that every token is predicted once.
 * Rows     Best-fit decreasing: from the longest piece to the shortest, ties in the order of the
 *          documents, each goes into the fullest row with room for it, ties into the first one, or
 *          into a new row.  At most 11/9 of the fewest possible rows, plus 4 (Johnson et al. 1974).
 * Group    The documents that are packed together.  A group grows until at most 1 % of its rows is
 *          padding, from PACKING_LEAST_ROWS to PACKING_MOST_ROWS rows; it exceeds these only by its
 *          last document, and where rows cannot be filled: all documents are longer than half a
 *          row, for example. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PACKING_LEAST_ROWS = 4, PACKING_MOST_ROWS = 64 };

/* Where a document comes from, as in struct token_span. */
struct packing_origin {
    size_t source, file;
    uint64_t at;
};

struct packing_piece {
    size_t at;       /* of its first token, among the tokens of the group */
    size_t offset;   /* of the same in its document */
    uint32_t length; /* tokens */
    uint32_t row;
    struct packing_origin origin;
};

struct packing {
    uint32_t row_tokens; /* set by the caller */
    bool overlap;        /* likewise */
    struct packing_piece *pieces;
    size_t num_pieces, capacity;
    uint64_t tokens;     /* of all pieces */
    uint64_t tried_rows; /* packed when they might have filled this many rows, but did not */
    size_t num_rows;     /* 0: the group is not complete */
};

/* Begins a group without documents. */
void packing_clear(struct packing *p);
void packing_release(struct packing *p);

/* Adds a document of `count` tokens, which begins at `at` among those of the group. */
void packing_add(struct packing *p, size_t at, size_t count, const struct packing_origin *origin);
/* Whether the group is complete.  Then its pieces are packed into num_rows rows. */
bool packing_complete(struct packing *p);
/* Renumbers the rows: row r becomes order[r].  Sorts the pieces by row, and in each row in the
 * order of the documents. */
void packing_reorder(struct packing *p, const uint32_t *order);

/* The first piece of a row, after packing_reorder; the others of the row follow it. */
const struct packing_piece *packing_row(const struct packing *p, uint32_t row);

/* Estimate of the memory of a group, with its tokens. */
int64_t packing_memory_bytes(int64_t row_tokens);

/* Sets the rows of pieces of 1 to `row_tokens` tokens, and sorts them by length.  Returns the
 * number of rows. */
size_t packing_best_fit(struct packing_piece *pieces, size_t count, uint32_t row_tokens);
