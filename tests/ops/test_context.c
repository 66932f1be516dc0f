// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "ops/context.h"

TEST(every_token_of_a_row_is_in_one_part)
{
    for (int zigzag = 0; zigzag < 2; zigzag++)
        for (int parts = 1; parts <= 5; parts++) {
            enum { T = 6 };
            int seen[5 * T] = {0};
            for (int part = 0; part < parts; part++) {
                struct context c = {parts, part, zigzag};
                struct token_run runs[MOST_RUNS];
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

TEST(parts_of_a_zigzag_see_as_many_keys_as_each_other)
{
    enum { T = 8, PARTS = 3 };
    for (int part = 0; part < PARTS; part++) {
        struct context c = {PARTS, part, true};
        struct token_run runs[MOST_RUNS];
        int n = context_runs(&c, T, runs), pairs = 0;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < runs[i].count; k++) pairs += runs[i].first + k + 1;
        CHECK(n == 2 && pairs == T * (PARTS * T + 1) / 2);
    }
    struct token_run runs[MOST_RUNS];
    CHECK(context_runs(&(struct context){4, 1, true}, 10, runs) == 2);
    CHECK(runs[0].first == 5 && runs[1].first == 30 && runs[1].at == 5 && runs[1].count == 5);
}

TEST(tokens_before_a_position_are_counted)
{
    for (int zigzag = 0; zigzag < 2; zigzag++)
        for (int part = 0; part < 3; part++) {
            struct context c = {3, part, zigzag};
            struct token_run runs[MOST_RUNS];
            int n = context_runs(&c, 4, runs);
            for (int position = 0; position <= 12; position++) {
                int before = 0;
                for (int i = 0; i < n; i++)
                    for (int k = 0; k < runs[i].count; k++) before += runs[i].first + k < position;
                CHECK(context_before(&c, 4, position) == before);
            }
        }
    CHECK(context_before(&(struct context){0}, 7, 5) == 5);
}
