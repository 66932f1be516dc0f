// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/sampling.h"

enum { V = 4 };
static const float logits[V] = {1, 3, 2, 3};

static int32_t pick(struct sampling s, uint64_t position)
{
    struct candidate order[V];
    return sampling_pick(&s, logits, V, position, order);
}

TEST(temperature_zero_is_greedy_and_breaks_ties_by_lowest_id)
{
    CHECK(pick((struct sampling){.top_p = 1}, 0) == 1);
}

TEST(top_k_and_top_p_exclude_the_tail)
{
    for (uint64_t i = 0; i < 200; i++) {
        int32_t two = pick((struct sampling){.temperature = 5, .top_p = 1, .top_k = 2}, i);
        CHECK(two == 1 || two == 3);
        CHECK(pick((struct sampling){.temperature = 5, .top_p = 0.01}, i) == 1);
    }
}

TEST(samples_follow_the_softmax)
{
    enum { DRAWS = 20000 };
    int seen[V] = {0};
    double sum = 0;
    struct sampling s = {.temperature = 2, .top_p = 1, .seed = 7};
    for (uint64_t i = 0; i < DRAWS; i++) seen[pick(s, i)]++;
    for (int i = 0; i < V; i++) sum += exp((double)logits[i] / 2);
    for (int i = 0; i < V; i++)
        CHECK_NEAR((double)seen[i] / DRAWS, exp((double)logits[i] / 2) / sum, 0.015);
    CHECK(pick(s, 5) == pick(s, 5));
}
