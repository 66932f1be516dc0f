// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "data/cyclic.h"

/* Expected values: tests/oracle/cyclic_order.py. */
TEST(cyclic_order_equals_megatrons_and_nemos)
{
    static const struct {
        bool sharded;
        uint64_t batch, first[8], hash;
    } cases[] = {{true, 0, {203, 248, 211, 452, 497, 460, 701, 746}, 464298915481242191u},
                 {false, 0, {182, 41, 901, 536, 192, 147, 935, 49}, 5299322148327932491u},
                 {true, 36, {203, 248, 211, 452, 497, 460, 701, 746}, 3256744675765087523u}};
    for (size_t i = 0; i < 3; i++) {
        struct cyclic c = {.samples = 1003,
                           .ranks = 4,
                           .rows = 3,
                           .batch = cases[i].batch,
                           .sharded = cases[i].sharded};
        uint64_t hash = 0;
        CHECK_STATUS(OK, cyclic_init(&c));
        for (uint64_t row = 0; row < 2500; row++) { /* two and a half epochs */
            uint64_t sample = cyclic_at(&c, row);
            if (row < 8) CHECK(sample == cases[i].first[row]);
            hash = hash * 31 + sample;
        }
        CHECK(hash == cases[i].hash);
        CHECK(cyclic_at(&c, 3) == cases[i].first[3]); /* back in epoch 0 */
        uint64_t active = cases[i].batch ? 972 : 996;
        CHECK(cyclic_begins_step(&c, 12) && !cyclic_begins_step(&c, 9));
        CHECK(cyclic_begins_step(&c, active + 24) && !cyclic_begins_step(&c, active + 27));
        cyclic_release(&c);
    }
}

TEST(cyclic_rejects_too_few_or_too_many_samples)
{
    struct cyclic c = {.samples = 11, .ranks = 4, .rows = 3};
    CHECK_STATUS(CONFIG, cyclic_init(&c));
    CHECK_MESSAGE("11 samples do not fill microbatches of 3 rows on 4 ranks");
    c = (struct cyclic){.samples = 30, .ranks = 4, .rows = 3, .batch = 36};
    CHECK_STATUS(CONFIG, cyclic_init(&c));
    CHECK_MESSAGE("30 samples do not fill a batch of 36 rows");
    c.batch = 20;
    CHECK_STATUS(CONFIG, cyclic_init(&c));
    CHECK_MESSAGE("data.sampler_batch = 20: must be a multiple of microbatches of 3 rows on 4");
    c = (struct cyclic){.samples = UINT32_MAX, .ranks = 1, .rows = 1};
    CHECK_STATUS(UNSUPPORTED, cyclic_init(&c));
}
