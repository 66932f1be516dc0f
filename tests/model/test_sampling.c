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
        CHECK(pick((struct sampling){.temperature = 5, .top_p = 0}, i) == 1);
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

TEST(min_p_drops_tokens_far_less_likely_than_the_best)
{
    const float logits_V[] = {2, 1, 0, -3};
    struct candidate order_V[4];
    struct sampling s = {.temperature = 1, .top_p = 1, .min_p = 0.3};
    bool seen[4] = {false};
    for (uint64_t i = 0; i < 300; i++) seen[sampling_pick(&s, logits_V, 4, i, order_V)] = true;
    CHECK(seen[0] && seen[1] && !seen[2] && !seen[3]); /* e^-1 is 0.37, e^-2 0.14 */
    s.min_p = 1;
    for (uint64_t i = 0; i < 50; i++) CHECK(sampling_pick(&s, logits_V, 4, i, order_V) == 0);
}

TEST(top_p_counts_the_tokens_that_min_p_drops)
{
    const float logits_V[] = {logf(0.5f), logf(0.21f), logf(0.19f), logf(0.1f)};
    struct candidate order_V[4];
    struct sampling s = {.temperature = 1, .top_p = 0.75, .min_p = 0.3};
    bool seen[4] = {false};
    for (uint64_t i = 0; i < 300; i++) seen[sampling_pick(&s, logits_V, 4, i, order_V)] = true;
    CHECK(seen[0] && seen[1] && seen[2] && !seen[3]); /* 0.71 of all, but 0.79 of the first three */
    s.min_p = 0.4;
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 300; i++) seen[sampling_pick(&s, logits_V, 4, i, order_V)] = true;
    CHECK(seen[0] && seen[1] && !seen[2]);
}

TEST(repeat_penalty_makes_tokens_of_the_text_less_likely)
{
    const float logits_V[] = {2, -1, 4, 0.5f};
    const int32_t ids[] = {2, 1, 2, 9};
    float out_V[4];
    sampling_penalize(&(struct sampling_penalty){1, ids, 4}, logits_V, 4, out_V);
    CHECK(!memcmp(out_V, logits_V, sizeof out_V));
    sampling_penalize(&(struct sampling_penalty){2, ids, 4}, logits_V, 4, out_V);
    CHECK(out_V[0] == 2 && out_V[1] == -2 && out_V[2] == 2 && out_V[3] == 0.5f);
}

TEST(log_sum_does_not_overflow)
{
    const float logits_V[] = {1000, 999, -1000};
    CHECK_NEAR(sampling_log_sum(logits_V, 3), 1000 + log(1 + exp(-1)), 1e-6);
}

TEST(top_k_and_top_p_keep_the_most_likely_of_many_tokens)
{
    enum { MANY = 1000 };
    float logits_V[MANY];
    struct candidate order_V[MANY];
    for (int i = 0; i < MANY; i++) logits_V[i] = (float)(i * 389 % MANY) * 0.01f; /* all differ */
    struct sampling k = {.temperature = 3, .top_p = 1, .top_k = 10};
    struct sampling p = {.temperature = 1, .top_p = 0.1};
    double total = 0, sum = 0;
    for (int i = 0; i < MANY; i++) total += exp(i * 0.01 - 9.99);
    int nucleus = 0;
    while (sum < 0.1 * total) sum += exp(-0.01 * nucleus++);
    float least_k = 100, least_p = 100;
    for (uint64_t i = 0; i < 3000; i++) {
        int32_t a = sampling_pick(&k, logits_V, MANY, i, order_V);
        int32_t b = sampling_pick(&p, logits_V, MANY, i, order_V);
        least_k = logits_V[a] < least_k ? logits_V[a] : least_k;
        least_p = logits_V[b] < least_p ? logits_V[b] : least_p;
    }
    CHECK_NEAR((double)least_k, 9.9, 1e-5);
    CHECK_NEAR((double)least_p, 9.99 - 0.01 * (nucleus - 1), 1e-5);
}

TEST(log_sum_of_many_logits_agrees_with_double_precision)
{
    enum { MANY = 777 };
    float logits_V[MANY];
    double sum = 0;
    for (int i = 0; i < MANY; i++) logits_V[i] = (float)(i * 389 % MANY) * 0.03f - 5;
    for (int i = 0; i < MANY; i++) sum += exp((double)logits_V[i]);
    CHECK_NEAR(sampling_log_sum(logits_V, MANY), log(sum), 1e-5);
}
