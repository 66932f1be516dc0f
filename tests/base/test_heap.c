// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/heap.h"

TEST(heap_memory_is_zeroed_and_heap_string_copies_a_prefix)
{
    unsigned char *p = heap(300);
    for (int i = 0; i < 300; i++) CHECK(p[i] == 0);
    free(p);
    char *word = heap_string("train CONFIG", 5);
    CHECK(!strcmp(word, "train"));
    word = heap_grow(word, 100, 1);
    CHECK(!strcmp(word, "train"));
    free(word);
}
