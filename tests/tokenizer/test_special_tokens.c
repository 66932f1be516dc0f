// SPDX-License-Identifier: Apache-2.0
#include "test.h"
#include "tokenizer/special_tokens.h"

TEST(special_tokens_are_found_by_text_and_id_and_display_the_first_name)
{
    struct special_tokens s = {0};
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "<|%d|>", i);
        special_tokens_add(&s, name, 100 + 3 * i);
    }
    special_tokens_add(&s, "<|again|>", 103);
    special_tokens_sort(&s);
    CHECK(s.count == 21);
    CHECK(special_tokens_find(&s, "<|19|>") == 157 && special_tokens_find(&s, "<|again|>") == 103);
    CHECK(special_tokens_find(&s, "<|20|>") == -1 && special_tokens_find(&s, "") == -1);
    CHECK(!strcmp(special_tokens_text(&s, 100), "<|0|>") &&
          !strcmp(special_tokens_text(&s, 157), "<|19|>"));
    CHECK(!strcmp(special_tokens_text(&s, 103), "<|1|>"));
    CHECK(!special_tokens_text(&s, 99) && !special_tokens_text(&s, 101) &&
          !special_tokens_text(&s, 158));
    special_tokens_release(&s);
}

TEST(special_tokens_can_be_empty)
{
    struct special_tokens s = {0};
    special_tokens_sort(&s);
    CHECK(special_tokens_find(&s, "a") == -1 && !special_tokens_text(&s, 0));
    special_tokens_release(&s);
}
