// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/token_list.h"

TEST(token_list_grows_and_keeps_its_ids)
{
    struct token_list l = {0};
    for (int32_t i = 0; i < 1000; i++) {
        token_list_reserve(&l, 1);
        CHECK(l.count < l.capacity);
        l.ids[l.count++] = i;
    }
    token_list_reserve(&l, 5000);
    CHECK(l.count == 1000 && l.capacity >= 6000);
    for (int32_t i = 0; i < 1000; i++) CHECK(l.ids[i] == i);
    token_list_release(&l);
    CHECK(!l.ids && !l.count && !l.capacity);
}

TEST(token_list_keeps_its_memory_when_emptied)
{
    struct token_list l = {0};
    token_list_reserve(&l, 100);
    const int32_t *ids = l.ids;
    size_t capacity = l.capacity;
    l.count = 100;
    l.count = 0;
    token_list_reserve(&l, 100);
    CHECK(l.ids == ids && l.capacity == capacity);
    token_list_release(&l);
}
