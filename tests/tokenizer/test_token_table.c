// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/token_table.h"

TEST(token_table_release_frees_and_zeroes)
{
    struct token_table e = {.tokens = heap(sizeof *e.tokens),
                            .num_tokens = 1,
                            .merges = heap(sizeof *e.merges),
                            .num_merges = 1};
    text_adds(&e.texts, "a b");
    token_table_release(&e);
    CHECK(!e.tokens && !e.merges && !e.texts.data && !e.num_tokens && !e.num_merges);
    token_table_release(&e);
}
