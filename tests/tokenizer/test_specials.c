// SPDX-License-Identifier: Apache-2.0
#include "test.h"
#include "tokenizer/specials.h"

TEST(specials_are_found_by_text_and_by_id_and_of_one_id_the_first_is_shown)
{
    struct specials s = {0};
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "<|%d|>", i);
        specials_add(&s, name, 100 + 3 * i);
    }
    specials_add(&s, "<|again|>", 103);
    specials_sort(&s);
    CHECK(s.count == 21);
    CHECK(specials_id(&s, "<|19|>") == 157 && specials_id(&s, "<|again|>") == 103);
    CHECK(specials_id(&s, "<|20|>") == -1 && specials_id(&s, "") == -1);
    CHECK(!strcmp(specials_text(&s, 100), "<|0|>") && !strcmp(specials_text(&s, 157), "<|19|>"));
    CHECK(!strcmp(specials_text(&s, 103), "<|1|>"));
    CHECK(!specials_text(&s, 99) && !specials_text(&s, 101) && !specials_text(&s, 158));
    specials_release(&s);
}

TEST(no_specials_are_found_where_there_are_none)
{
    struct specials s = {0};
    specials_sort(&s);
    CHECK(specials_id(&s, "a") == -1 && !specials_text(&s, 0));
    specials_release(&s);
}
