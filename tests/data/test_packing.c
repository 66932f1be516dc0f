// SPDX-License-Identifier: Apache-2.0
#include "data/packing.h"
#include "test.h"

#include "base/heap.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static const struct packing_origin unknown = {0};

/* The same by searching all pieces, and adding up all rows, each time. */
static size_t search_best_fit(const uint32_t *lengths, size_t count, uint32_t row_tokens,
                              uint32_t *rows)
{
    size_t num_rows = 0;
    for (size_t i = 0; i < count; i++) rows[i] = UINT32_MAX;
    for (size_t n = 0; n < count; n++) {
        size_t longest = count, best = SIZE_MAX, most = 0;
        for (size_t i = 0; i < count; i++)
            if (rows[i] == UINT32_MAX && (longest == count || lengths[i] > lengths[longest]))
                longest = i;
        for (size_t r = 0; r < num_rows; r++) {
            size_t used = 0;
            for (size_t i = 0; i < count; i++) used += rows[i] == r ? lengths[i] : 0;
            if (used + lengths[longest] <= row_tokens && (best == SIZE_MAX || used > most))
                best = r, most = used;
        }
        rows[longest] = (uint32_t)(best == SIZE_MAX ? num_rows++ : best);
    }
    return num_rows;
}

TEST(best_fit_equals_a_search_of_all_pieces_and_rows)
{
    enum { CASES = 300, MOST = 40 };
    for (uint64_t c = 0; c < CASES; c++) {
        struct packing_piece pieces[MOST];
        uint32_t lengths[MOST], want[MOST];
        uint32_t row_tokens = 1 + (uint32_t)rng_below(c % 3 ? 12 : 200, c, RNG_TEST, 0, 0);
        size_t count = rng_below(MOST + 1, c, RNG_TEST, 0, 1);
        for (size_t i = 0; i < count; i++) {
            lengths[i] = 1 + (uint32_t)rng_below(row_tokens, c, RNG_TEST, 1, i);
            pieces[i] = (struct packing_piece){.at = 1000 * i, .length = lengths[i]};
        }
        CHECK(packing_best_fit(pieces, count, row_tokens) ==
              search_best_fit(lengths, count, row_tokens, want));
        for (size_t i = 0; i < count; i++) CHECK(pieces[i].row == want[pieces[i].at / 1000]);
    }
}

TEST(only_documents_longer_than_a_row_are_cut)
{
    static const struct {
        size_t count;
        bool overlap;
        uint32_t lengths[5];
    } cases[] = {{1, false, {1}},         {10, false, {10}},     {10, true, {10}},
                 {11, false, {10, 1}},    {11, true, {10, 2}},   {19, true, {10, 10}},
                 {20, true, {10, 10, 2}}, {20, false, {10, 10}}, {38, true, {10, 10, 10, 10, 2}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct packing p = {.row_tokens = 10, .overlap = cases[c].overlap};
        size_t n = 0, at = 100;
        packing_add(&p, 100, cases[c].count, &unknown);
        for (; n < 5 && cases[c].lengths[n]; n++) {
            CHECK(n < p.num_pieces && p.pieces[n].length == cases[c].lengths[n]);
            CHECK(p.pieces[n].at == at && p.pieces[n].offset == at - 100);
            at += p.pieces[n].length - cases[c].overlap;
        }
        CHECK(n == p.num_pieces && at + cases[c].overlap == 100 + cases[c].count);
        packing_release(&p);
    }
}

TEST(reordered_pieces_are_sorted_by_row_and_document)
{
    struct packing p = {.row_tokens = 10};
    static const size_t documents[] = {3, 10, 6, 4, 7}; /* rows 10; 7 3; 6 4 */
    static const uint32_t order[] = {2, 0, 1};
    static const size_t want[] = {0, 19 + 4, 13, 19, 3};
    size_t at = 0;
    for (size_t d = 0; d < 5; at += documents[d++]) packing_add(&p, at, documents[d], &unknown);
    CHECK(packing_best_fit(p.pieces, p.num_pieces, 10) == 3);
    packing_reorder(&p, order);
    for (size_t i = 0; i < 5; i++) CHECK(p.pieces[i].at == want[i]);
    CHECK(packing_row(&p, 0) == p.pieces && packing_row(&p, 1) == p.pieces + 2);
    CHECK(packing_row(&p, 2) == p.pieces + 4 && packing_row(&p, 3) == p.pieces + 5);
    packing_release(&p);
}

/* Lengths of documents: log-normal, as those of web text are. */
static size_t draw_length(uint64_t seed, uint64_t n)
{
    double length = 450 * exp(1.1 * rng_normal(seed, RNG_TEST, 0, n));
    return length < 1 ? 1 : (size_t)length;
}

struct padding {
    double share, least, rows; /* least: with the fewest possible rows; rows: of a group */
};

static struct padding pack_groups(uint32_t row_tokens, double scale, int groups)
{
    struct packing p = {.row_tokens = row_tokens, .overlap = true};
    double rows = 0, least = 0, tokens = 0;
    uint64_t n = 0;
    for (int g = 0; g < groups; g++) {
        packing_clear(&p);
        do {
            size_t length = (size_t)ceil(scale * (double)draw_length(row_tokens, n++));
            packing_add(&p, 0, length, &unknown);
        } while (!packing_complete(&p));
        CHECK(p.num_rows >= PACKING_LEAST_ROWS && (p.num_rows - 1) * row_tokens < 2 * p.tokens);
        rows += (double)p.num_rows, tokens += (double)p.tokens;
        least += (double)((p.tokens + row_tokens - 1) / row_tokens);
    }
    packing_release(&p);
    return (struct padding){1 - tokens / (rows * row_tokens), 1 - tokens / (least * row_tokens),
                            rows / groups};
}

TEST(about_one_percent_of_packed_web_text_is_padding)
{
    static const uint32_t row_tokens[] = {257, 513, 1025, 2049, 4097, 8193, 32769};
    for (size_t i = 0; i < sizeof row_tokens / sizeof *row_tokens; i++) {
        struct padding p = pack_groups(row_tokens[i], 1, 200);
        print_message("rows of %5u tokens: %.2f %% padding, at least %.2f %%; %.1f rows a group\n",
                      row_tokens[i], 100 * p.share, 100 * p.least, p.rows);
        CHECK(p.share < (row_tokens[i] < 1000 ? 0.02 : 0.01) && p.least <= p.share);
    }
}

/* All are longer than half a row, so each has a row of its own. */
TEST(a_group_of_documents_that_share_no_rows_ends)
{
    struct packing p = {.row_tokens = 10};
    for (int round = 0; round < 3; round++) {
        int n = 0;
        packing_clear(&p);
        do packing_add(&p, 6 * (size_t)n++, 6, &unknown);
        while (!packing_complete(&p));
        CHECK(p.num_rows == (size_t)n && n <= PACKING_MOST_ROWS * 10 / 6 + 1);
    }
    packing_release(&p);
}

TEST(a_group_ends_with_a_document_of_many_rows)
{
    struct packing p = {.row_tokens = 10, .overlap = true};
    packing_add(&p, 0, 5, &unknown);
    CHECK(!packing_complete(&p));
    packing_add(&p, 5, 1000000, &unknown);
    CHECK(packing_complete(&p) && p.num_rows == 111112);
    packing_release(&p);
}
