// SPDX-License-Identifier: Apache-2.0
#include "data/row_split.h"

uint64_t row_split_reader(const struct row_split *s, uint64_t position)
{
    return position / s->block % s->readers;
}

uint64_t row_split_count(const struct row_split *s, uint64_t reader, uint64_t end)
{
    uint64_t turn = s->readers * s->block, begin = reader * s->block, left = end % turn;
    uint64_t last = left < begin ? 0 : left - begin < s->block ? left - begin : s->block;
    return end / turn * s->block + last;
}

uint64_t row_split_position(const struct row_split *s, uint64_t reader, uint64_t k)
{
    return (k / s->block * s->readers + reader) * s->block + k % s->block;
}

/* Whole turns give every reader `block` rows, wherever they begin.  The rest lies in one block, or
 * at the end of one and the start of the reader's next, which is a turn later. */
uint64_t row_split_most(const struct row_split *s, uint64_t rows)
{
    uint64_t turn = s->readers * s->block, left = rows % turn;
    uint64_t others = turn - s->block; /* between two blocks of a reader */
    uint64_t last = left < s->block ? left : left > others + s->block ? left - others : s->block;
    return rows / turn * s->block + last;
}
