// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/way.h"
#include "test.h"

TEST(ways_have_names_of_their_own_and_blocks_that_their_memory_holds)
{
    int count = 0;
    CHECK(!strcmp(way_at(0)->name, "usual"));
    for (; way_at(count); count++) {
        const struct way *w = way_at(count);
        CHECK(way_named(w->name) == w);
        CHECK(w->rows * w->columns <= WAY_BLOCK && w->rows >= 1 && w->columns >= 1);
        CHECK(w->near_halves >= 1);
    }
    CHECK(count >= 2);
    CHECK(!way_named("") && !way_named("of another version"));
}
