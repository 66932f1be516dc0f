// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/context.h"

TEST(every_token_of_a_sequence_is_in_exactly_one_part)
{
    for (int zigzag = 0; zigzag < 2; zigzag++)
        for (int parts = 1; parts <= 5; parts++) {
            enum { T = 6 };
            int seen[5 * T] = {0};
            for (int part = 0; part < parts; part++) {
                struct context c = {parts, part, zigzag};
                struct token_run runs[MAX_TOKEN_RUNS];
                int n = context_runs(&c, T, runs), at = 0, last = -1;
                for (int i = 0; i < n; i++) {
                    CHECK(runs[i].at == at && runs[i].first > last);
                    for (int k = 0; k < runs[i].count; k++) seen[runs[i].first + k]++;
                    at += runs[i].count, last = runs[i].first;
                }
                CHECK(at == T);
            }
            for (int t = 0; t < parts * T; t++) CHECK(seen[t] == 1);
        }
}

TEST(zigzag_balances_causal_attention)
{
    enum { T = 8, PARTS = 3 };
    for (int part = 0; part < PARTS; part++) {
        struct context c = {PARTS, part, true};
        struct token_run runs[MAX_TOKEN_RUNS];
        int n = context_runs(&c, T, runs), pairs = 0;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < runs[i].count; k++) pairs += runs[i].first + k + 1;
        CHECK(n == 2 && pairs == T * (PARTS * T + 1) / 2);
    }
    struct token_run runs[MAX_TOKEN_RUNS];
    CHECK(context_runs(&(struct context){4, 1, true}, 10, runs) == 2);
    CHECK(runs[0].first == 5 && runs[1].first == 30 && runs[1].at == 5 && runs[1].count == 5);
}

TEST(context_before_counts_tokens_before_a_position)
{
    for (int zigzag = 0; zigzag < 2; zigzag++)
        for (int part = 0; part < 3; part++) {
            struct context c = {3, part, zigzag};
            struct token_run runs[MAX_TOKEN_RUNS];
            int n = context_runs(&c, 4, runs);
            for (int position = 0; position <= 12; position++) {
                int before = 0;
                for (int i = 0; i < n; i++)
                    for (int k = 0; k < runs[i].count; k++) before += runs[i].first + k < position;
                CHECK(context_tokens_before(&c, 4, position) == before);
            }
        }
    CHECK(context_tokens_before(&(struct context){0}, 7, 5) == 5);
}

enum { ROWS = 2, TOKENS = 10, PARTS = 3, LENGTH = PARTS * TOKENS };

/* The positions of a part's tokens. */
static void positions_of(const struct context *c, int positions[TOKENS])
{
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(c, TOKENS, runs), at = 0;
    for (int i = 0; i < num_runs; i++)
        for (int k = 0; k < runs[i].count; k++) positions[at++] = runs[i].first + k;
}

/* Checks that exactly the keys [begin, close) of the part are visible. */
static void check_seen(const struct context_bounds *a, const struct context_bounds_io *io)
{
    int here[TOKENS], there[TOKENS];
    positions_of(&a->queries, here), positions_of(&a->keys, there);
    for (int at = 0; at < ROWS * TOKENS; at++)
        for (int key = 0; key < TOKENS; key++) {
            int position = there[key];
            bool seen = (!a->causal || position <= here[at % TOKENS]) &&
                        (!a->window || position > here[at % TOKENS] - a->window) &&
                        (!io->start_BT || position >= io->start_BT[at]) &&
                        (!io->end_BT || position < io->end_BT[at]);
            CHECK((key >= io->key_begin_BT[at] && key < io->key_end_BT[at]) == seen);
        }
}

OPS_TEST(context_bounds_are_the_keys_of_a_part_that_a_query_sees)
{
    for (int kind = 0; kind < 2 * 2 * 2 * 2 * PARTS * PARTS; kind++) {
        bool zigzag = kind & 1, causal = kind & 2, documents = kind & 4;
        int window = causal && kind & 8 ? 6 : 0, pair = kind / 16, start[ROWS * TOKENS],
            end[ROWS * TOKENS], here[TOKENS];
        struct context_bounds a = {ROWS, TOKENS, {PARTS, pair / PARTS, zigzag},
                                   {0},  causal, window};
        a.keys = (struct context){PARTS, pair % PARTS, zigzag};
        positions_of(&a.queries, here);
        for (int at = 0; at < ROWS * TOKENS; at++) { /* alternating documents of 7 and 13 tokens */
            int in = (here[at % TOKENS] + at / TOKENS) % 20, first = here[at % TOKENS] - in;
            start[at] = first + (in < 7 ? 0 : 7), end[at] = first + (in < 7 ? 7 : 20);
            if (start[at] < 0) start[at] = 0;
        }
        for (int table = 0; table < 2; table++) {
            int32_t begin[ROWS * TOKENS], close[ROWS * TOKENS];
            struct context_bounds_io io = {documents ? start : NULL, documents ? end : NULL, begin,
                                           close};
            RIG_RUN(context_bounds(table ? rig_fast() : &ops_cpu_reference, &a, &io, rig_queue()));
            check_seen(&a, &io);
        }
    }
}

OPS_TEST(context_bounds_agree_with_the_reference_for_whole_and_one_token_rows)
{
    static const struct context_bounds kinds[] = {
        {ROWS, TOKENS, {0, 0, true}, {0, 0, true}, true, 3},
        {ROWS, TOKENS, {1, 0, false}, {1, 0, false}, false, 0},
        {1, 1, {4, 3, false}, {4, 0, false}, true, 0},
        {1, 1, {4, 0, false}, {4, 3, false}, true, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int32_t bounds[2][2][ROWS * TOKENS] = {0};
        for (int table = 0; table < 2; table++) {
            struct context_bounds_io io = {NULL, NULL, bounds[table][0], bounds[table][1]};
            const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
            RIG_RUN(context_bounds(ops, &kinds[i], &io, rig_queue()));
        }
        CHECK(!memcmp(bounds[0], bounds[1], sizeof bounds[0]));
        if (kinds[i].B == ROWS)
            check_seen(&kinds[i], &(struct context_bounds_io){.key_begin_BT = bounds[1][0],
                                                              .key_end_BT = bounds[1][1]});
        else
            CHECK(bounds[1][1][0] == (kinds[i].queries.part == 3));
    }
}

TEST(context_bounds_rejects_invalid_parts)
{
    const struct context_bounds good = {1, 4, {2, 0, true}, {2, 1, true}, true, 0};
    struct context_bounds bad[8];
    for (int i = 0; i < 8; i++) bad[i] = good;
    bad[0].T = 3, bad[1].B = 0, bad[2].T = 0, bad[3].queries.part = 2, bad[4].keys.part = -1;
    bad[5].keys.parts = 3, bad[6].keys.zigzag = false, bad[7].T = 1 << 30;
    for (int i = 0; i < 8; i++)
        CHECK_STATUS(SHAPE, context_bounds(&ops_cpu_reference, &bad[i], NULL, rig_queue()));
    rig_queue()->sizing = true;
    CHECK_STATUS(OK, context_bounds(&ops_cpu_reference, &good, NULL, rig_queue()));
    rig_queue()->sizing = false;
}
