// SPDX-License-Identifier: Apache-2.0
#include "data/blend.h"

#include "test.h"

static void check_rows(const struct blend *b, const int *source, const int *sample, uint64_t size)
{
    CHECK(b->size == size);
    for (uint64_t g = 0; g < size; g++) {
        CHECK(b->source[g] == source[g]);
        CHECK(b->sample[g] == (uint32_t)sample[g]);
    }
}

TEST(blend_picks_the_source_furthest_behind_its_weight)
{
    struct blend b;
    CHECK_STATUS(OK, blend_weighted(&b, (double[]){.3, .7}, 2, 10));
    check_rows(&b, (int[]){1, 0, 1, 1, 0, 1, 1, 0, 1, 1}, (int[]){0, 0, 1, 2, 1, 3, 4, 2, 5, 6},
               10);
    blend_release(&b);
    CHECK_STATUS(OK, blend_weighted(&b, (double[]){.5, .25, .25}, 3, 12));
    check_rows(&b, (int[]){0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0},
               (int[]){0, 0, 0, 1, 2, 1, 1, 3, 4, 2, 2, 5}, 12);
    blend_release(&b);
}

TEST(blend_exhaustive_takes_every_sample_once)
{
    struct blend b;
    CHECK_STATUS(OK, blend_exhaustive(&b, (uint64_t[]){3, 7}, 2));
    check_rows(&b, (int[]){1, 0, 1, 1, 0, 1, 1, 0, 1, 1}, (int[]){0, 0, 1, 2, 1, 3, 4, 2, 5, 6},
               10);
    blend_release(&b);
    CHECK_STATUS(OK, blend_exhaustive(&b, (uint64_t[]){0, 2}, 2));
    check_rows(&b, (int[]){1, 1}, (int[]){0, 1}, 2);
    blend_release(&b);
}

TEST(blend_rejects_more_samples_than_32_bits_can_number)
{
    struct blend b;
    CHECK_STATUS(UNSUPPORTED, blend_weighted(&b, (double[]){1}, 1, UINT64_C(1) << 40));
    CHECK_MESSAGE("a blend of 1099511627776 samples exceeds 32-bit indices; lower data.samples");
    CHECK_STATUS(UNSUPPORTED, blend_exhaustive(&b, (uint64_t[]){1, UINT32_MAX}, 2));
    CHECK_MESSAGE("a blend of 4294967296 samples exceeds 32-bit indices; use fewer sources");
    CHECK(!b.source && !b.sample);
}

TEST(blend_targets_and_margins_round_up)
{
    CHECK(blend_target(1000, .3) == 300 && blend_target(1001, .3) == 301);
    CHECK(blend_add_margin(300) == 302 && blend_add_margin(200) == 201);
    CHECK(blend_add_margin(1) == 2 && blend_add_margin(0) == 0);
}

/* Bounds of the training, validation and test ranges from megatron-core 0.16.1. */
TEST(blend_split_range_matches_megatron)
{
    static const struct {
        const char *split;
        uint64_t count, bounds[4];
    } cases[] = {{"949,50,1", 1000, {0, 949, 999, 1000}},
                 {"949,50,1", 12345, {0, 11715, 12333, 12345}},
                 {"969, 30, 1", 12345, {0, 11962, 12333, 12345}},
                 {"99990,8,2", 12345, {0, 12344, 12345, 12345}},
                 {"[1/1/1]", 100000, {0, 33333, 66667, 100000}},
                 {"1 1 2", 2, {0, 0, 1, 2}}, /* rounds half to even */
                 {".5,.5,0.25", 10, {0, 4, 8, 10}}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int part = BLEND_TRAIN; part < BLEND_PARTS; part++) {
            uint64_t begin, end;
            CHECK_STATUS(OK, blend_split_range(cases[c].split, (enum blend_part)part,
                                               cases[c].count, &begin, &end));
            CHECK(begin == cases[c].bounds[part] && end == cases[c].bounds[part + 1]);
        }
}

TEST(blend_split_range_rejects_malformed_splits)
{
    static const struct {
        const char *split, *message;
    } cases[] = {{"1,2,3,4", "expected at most three numbers"},
                 {"1.2.3", "1.2.3 is not a number"},
                 {".", ". is not a number"},
                 {"", "all parts are 0"},
                 {"0,0", "all parts are 0"},
                 {"0,1", "leaves no data for training"}};
    uint64_t begin, end;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        CHECK_STATUS(CONFIG, blend_split_range(cases[c].split, BLEND_TRAIN, 10, &begin, &end));
        CHECK_MESSAGE(cases[c].message);
    }
    CHECK_STATUS(CONFIG, blend_split_range("1", BLEND_VALID, 10, &begin, &end));
    CHECK_MESSAGE("leaves no data for validation");
}
