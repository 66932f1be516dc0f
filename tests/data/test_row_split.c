// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/row_split.h"

enum { READERS = 7, BLOCKS = 4, POSITIONS = 70 };

TEST(row_split_gives_every_position_to_one_reader)
{
    for (uint64_t readers = 1; readers <= READERS; readers++)
        for (uint64_t block = 1; block <= BLOCKS; block++) {
            const struct row_split s = {readers, block};
            uint64_t counts[READERS] = {0};
            for (uint64_t p = 0; p < POSITIONS; p++) {
                uint64_t reader = row_split_reader(&s, p);
                CHECK(reader < readers && row_split_count(&s, reader, p) == counts[reader]);
                CHECK(row_split_position(&s, reader, counts[reader]++) == p);
            }
        }
}

TEST(row_split_knows_the_most_rows_of_a_reader_in_any_step)
{
    for (uint64_t readers = 1; readers <= READERS; readers++)
        for (uint64_t block = 1; block <= BLOCKS; block++)
            for (uint64_t rows = 0; rows < POSITIONS; rows++) {
                const struct row_split s = {readers, block};
                uint64_t most = 0;
                for (uint64_t begin = 0; begin < readers * block; begin++)
                    for (uint64_t r = 0; r < readers; r++) {
                        uint64_t count =
                            row_split_count(&s, r, begin + rows) - row_split_count(&s, r, begin);
                        if (count > most) most = count;
                    }
                CHECK(row_split_most(&s, rows) == most);
            }
}
