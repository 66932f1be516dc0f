// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/stages.h"

enum { MAX_STAGES = 64 };

/* Blocks of each stage, as text. */
static void check_split(struct stages s, const char *want)
{
    int begin[MAX_STAGES + 1];
    struct text got = {0};
    CHECK_STATUS(OK, stages_split(&s, begin));
    for (int i = 0; i < s.pp * s.chunks; i++)
        text_addf(&got, "%s%d", i ? " " : "", begin[i + 1] - begin[i]);
    if (strcmp(got.data, want)) print_error("%s, expected %s\n", got.data, want);
    CHECK(!strcmp(got.data, want));
    CHECK(begin[0] == 0 && begin[s.pp * s.chunks] == s.blocks);
    text_release(&got);
}

static struct stages torchtitan(int blocks, int pp, int chunks, int first, int last)
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

TEST(torchtitan_stages_count_embedding_and_head_and_fill_the_first)
{
    check_split(torchtitan(32, 4, 1, 1, 1), "8 9 8 7");
    check_split(torchtitan(126, 8, 2, 1, 1), "7 8 8 8 8 8 8 8 8 8 8 8 8 8 8 7");
    check_split(torchtitan(6, 4, 1, 1, 1), "1 2 2 1");
    check_split(torchtitan(3, 2, 1, 2, 2), "2 1");
    check_split(torchtitan(8, 4, 1, 0, 0), "2 2 2 2");
    check_split(torchtitan(10, 4, 1, 0, 0), "3 3 2 2");
    check_split(torchtitan(5, 1, 1, 1, 1), "5");
    /* Embedding and head are stages of their own. */
    check_split(torchtitan(2, 4, 1, 1, 1), "0 1 1 0");
}

TEST(nxdt_stages_fill_the_last)
{
    check_split(nxdt(80, 8, 1), "10 10 10 10 10 10 10 10");
    check_split(nxdt(126, 32, 1),
                "3 3 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4");
    check_split(nxdt(10, 2, 2), "2 2 3 3");
    check_split(nxdt(3, 3, 1), "1 1 1");
}

TEST(stages_end_at_explicit_split_points)
{
    check_split((struct stages){.split = SPLIT_cuts,
                                .blocks = 80,
                                .pp = 4,
                                .chunks = 1,
                                .cuts = {18, 39, 60},
                                .num_cuts = 3},
                "19 21 21 19");
}

TEST(stages_partition_the_blocks_evenly)
{
    int begin[MAX_STAGES + 1];
    for (int split = 0; split < 2; split++)
        for (int blocks = 1; blocks <= 20; blocks++)
            for (int pp = 1; pp <= 8; pp++)
                for (int chunks = 1; chunks <= 4; chunks++)
                    for (int less = 0; less < 9; less++) {
                        struct stages s = torchtitan(blocks, pp, chunks, less % 3, less / 3);
                        if (split) s = nxdt(blocks, pp, chunks);
                        if (stages_split(&s, begin)) continue;
                        int n = pp * chunks, min = INT32_MAX, max = 0;
                        CHECK(begin[0] == 0 && begin[n] == blocks);
                        for (int i = 0; i < n; i++) {
                            int weight = begin[i + 1] - begin[i];
                            CHECK(weight >= (i == 0 || i == n - 1 ? 0 : 1));
                            if (!split) weight += i == 0 ? s.first_less : 0;
                            if (!split) weight += i == n - 1 ? s.last_less : 0;
                            if (weight < min) min = weight;
                            if (weight > max) max = weight;
                        }
                        CHECK(n == 1 || max - min <= 1);
                    }
}

TEST(empty_stages_are_rejected_with_the_closest_valid_degree)
{
    struct stages s = torchtitan(4, 7, 1, 1, 1);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("parallelism.pipeline_parallel_degree = 7 with 1 stage per rank");
    CHECK_MESSAGE("model.n_layers = 4, the embedding counts as 1, the head as 1; try 6");
    s = torchtitan(8, 4, 2, 2, 1);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("with 2 stages per rank leaves stages with fewer than 2 layers");
    CHECK_MESSAGE("; try 2");
    s = nxdt(6, 4, 2);
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("without any of the model.n_layers = 6 blocks; try 3");
    s.pp = 3;
    CHECK_STATUS(OK, stages_split(&s, NULL));
}

TEST(unordered_split_points_are_rejected)
{
    struct stages s = {.split = SPLIT_cuts, .blocks = 5, .pp = 4, .chunks = 1, .cuts = {1, 2, 2}};
    s.num_cuts = 2;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("expected 3 blocks for 4 stages, got 2");
    s.num_cuts = 3;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("split_points: number 3 is after block 2: must be between 3 and 3");
    s.cuts[2] = 4;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    s.cuts[2] = 3, s.cuts[0] = -1;
    CHECK_STATUS(CONFIG, stages_split(&s, NULL));
    CHECK_MESSAGE("split_points: number 1 is after block -1: must be between 0 and 1");
    s.cuts[0] = 0;
    CHECK_STATUS(OK, stages_split(&s, NULL));
}

TEST(stages_per_rank_follow_from_schedule_or_layers_per_stage)
{
    struct stages s = torchtitan(30, 4, 0, 1, 1);
    int chunks;
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_1F1B, 0, &chunks));
    CHECK(chunks == 1);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_Interleaved1F1B, 0, &chunks));
    CHECK(chunks == 2);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_1F1B, 8, &chunks));
    CHECK(chunks == 1);
    CHECK_STATUS(OK, stages_chunks(&s, SCHEDULE_Interleaved1F1B, 2, &chunks));
    CHECK(chunks == 4);
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_Interleaved1F1B, 8, &chunks));
    CHECK_MESSAGE("pipeline_parallel_layers_per_stage = 8 makes 4 stages of 32 layers");
    CHECK_MESSAGE("2 or more, per rank; try 4");
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_1F1B, 7, &chunks));
    CHECK_MESSAGE("requires one per rank; try 8");
    CHECK_STATUS(CONFIG, stages_chunks(&s, SCHEDULE_Interleaved1F1B, 3, &chunks));
    CHECK_MESSAGE("makes 11 stages");
    CHECK_MESSAGE("; try 2 or 4");
}
