// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/stages.h"

enum { MOST = 64 };

/* Blocks of each stage, as text. */
static void check_split(struct stages s, const char *want)
{
    int begin[MOST + 1];
    struct text got = {0};
    CHECK_STATUS(OK, stages_split(&s, begin));
    for (int i = 0; i < s.pp * s.chunks; i++)
        text_addf(&got, "%s%d", i ? " " : "", begin[i + 1] - begin[i]);
    if (strcmp(got.data, want)) print_error("%s, wanted %s\n", got.data, want);
    CHECK(!strcmp(got.data, want));
    CHECK(begin[0] == 0 && begin[s.pp * s.chunks] == s.blocks);
    text_release(&got);
}

static struct stages titan(int blocks, int pp, int chunks, int first, int last)
{
    return (struct stages){.split = SPLIT_first,
                           .blocks = blocks,
                           .pp = pp,
                           .chunks = chunks,
                           .first_less = first,
                           .last_less = last};
}

static struct stages nxdt(int blocks, int pp, int chunks)
{
    return (struct stages){.split = SPLIT_last, .blocks = blocks, .pp = pp, .chunks = chunks};
}

TEST(stages_of_torchtitan_count_embedding_and_head_and_fill_the_first)
{
    check_split(titan(32, 4, 1, 1, 1), "8 9 8 7");
    check_split(titan(126, 8, 2, 1, 1), "7 8 8 8 8 8 8 8 8 8 8 8 8 8 8 7");
    check_split(titan(6, 4, 1, 1, 1), "1 2 2 1");
    check_split(titan(3, 2, 1, 2, 2), "2 1");
    check_split(titan(8, 4, 1, 0, 0), "2 2 2 2");
    check_split(titan(10, 4, 1, 0, 0), "3 3 2 2");
    check_split(titan(5, 1, 1, 1, 1), "5");
    /* An embedding or a head that is a stage of its own. */
    check_split(titan(2, 4, 1, 1, 1), "0 1 1 0");
}

TEST(stages_of_nxdt_fill_the_last)
{
    check_split(nxdt(80, 8, 1), "10 10 10 10 10 10 10 10");
    check_split(nxdt(126, 32, 1),
                "3 3 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4");
    check_split(nxdt(10, 2, 2), "2 2 3 3");
    check_split(nxdt(3, 3, 1), "1 1 1");
}

TEST(stages_end_after_the_blocks_that_are_cut_at)
{
    check_split((struct stages){.split = SPLIT_cuts,
                                .blocks = 80,
                                .pp = 4,
                                .chunks = 1,
                                .cuts = {18, 39, 60},
                                .num_cuts = 3},
                "19 21 21 19");
}

TEST(stages_hold_every_block_once_however_many_there_are)
{
    int begin[MOST + 1];
    for (int split = 0; split < 2; split++)
        for (int blocks = 1; blocks <= 20; blocks++)
            for (int pp = 1; pp <= 8; pp++)
                for (int chunks = 1; chunks <= 4; chunks++)
                    for (int less = 0; less < 9; less++) {
                        struct stages s = titan(blocks, pp, chunks, less % 3, less / 3);
                        if (split) s = nxdt(blocks, pp, chunks);
                        if (stages_split(&s, begin)) continue;
                        int n = pp * chunks, least = INT32_MAX, most = 0;
                        CHECK(begin[0] == 0 && begin[n] == blocks);
                        for (int i = 0; i < n; i++) {
                            int weight = begin[i + 1] - begin[i];
                            CHECK(weight >= (i == 0 || i == n - 1 ? 0 : 1));
                            if (!split) weight += i == 0 ? s.first_less : 0;
                            if (!split) weight += i == n - 1 ? s.last_less : 0;
                            if (weight < least) least = weight;
                            if (weight > most) most = weight;
                        }
                        CHECK(n == 1 || most - least <= 1);
                    }
}

TEST(stages_that_would_be_empty_are_refused_with_the_nearest_that_would_not)
{
    struct stages s = titan(4, 7, 1, 1, 1);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("parallelism.pipeline_parallel_degree = 7 with 1 stage a rank");
    CHECK_MESSAGE("model.n_layers = 4, the embedding counts as 1, the head as 1: 6 would");
    s = titan(8, 4, 2, 2, 1);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("with 2 stages a rank leaves stages with less than 2 of the layers");
    CHECK_MESSAGE(": 2 would");
    s = nxdt(6, 4, 2);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("without any of model.n_layers = 6 blocks: 3 would");
    s.pp = 3;
    CHECK_STATUS(OK, stages_split(&s, NULL));
}

TEST(stages_refuse_cuts_that_leave_a_stage_empty_or_out_of_order)
{
    struct stages s = {.split = SPLIT_cuts, .blocks = 5, .pp = 4, .chunks = 1, .cuts = {1, 2, 2}};
    s.num_cuts = 2;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("2 cuts of the blocks make 3 stages, not the 4");
    s.num_cuts = 3;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("cut 3 of the pipeline is after block 2: 3 to 3 are possible");
    s.cuts[2] = 4;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    s.cuts[2] = 3, s.cuts[0] = -1;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("cut 1 of the pipeline is after block -1: 0 to 1");
    s.cuts[0] = 0;
    CHECK_STATUS(OK, stages_split(&s, NULL));
}

TEST(stages_a_rank_follow_from_the_schedule_or_from_the_layers_of_a_stage)
{
    struct stages s = titan(30, 4, 0, 1, 1);
    int chunks;
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_one_ahead, 0, &chunks));
    CHECK(chunks == 1);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_interleaved, 0, &chunks));
    CHECK(chunks == 2);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_one_ahead, 8, &chunks));
    CHECK(chunks == 1);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_interleaved, 2, &chunks));
    CHECK(chunks == 4);
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_interleaved, 8, &chunks));
    CHECK_MESSAGE("pipeline_parallel_layers_per_stage = 8 makes 4 stages of 32 layers");
    CHECK_MESSAGE("2 or more, a rank: 4 would");
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_one_ahead, 7, &chunks));
    CHECK_MESSAGE("wants one a rank: 8 would");
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_interleaved, 3, &chunks));
    CHECK_MESSAGE("makes 11 stages");
    CHECK_MESSAGE(": 2 or 4 would");
}
