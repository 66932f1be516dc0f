// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "train/memory.h"

TEST(memory_of_a_rank_adds_up_over_its_kinds)
{
    struct memory_plan p = {0};
    for (int i = 0; i < MEMORY_COUNT; i++) p.bytes[i] = (size_t)1 << i;
    CHECK(memory_total(&p) == ((size_t)1 << MEMORY_COUNT) - 1);
    CHECK(!strcmp(memory_name(MEMORY_gradients), "gradients"));
    CHECK(strstr(memory_text(MEMORY_optimizer), "moments"));
}
