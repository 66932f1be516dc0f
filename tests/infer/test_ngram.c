// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "infer/ngram.h"

static double loss(int n, const int32_t *learnt, size_t count, const int32_t *ids, size_t len,
                   int64_t *tokens)
{
    struct ngram *g = ngram_make(n, 256);
    struct ngram_score s = {0};
    ngram_learn(g, learnt, count);
    ngram_measure(g, ids, len, &s);
    ngram_free(g);
    *tokens = s.tokens;
    return s.loss_sum;
}

TEST(ngram_probability_is_the_smoothed_ratio_of_counts)
{
    const int32_t learnt[] = {1, 2, 1, 2, 1, 3}, ids[] = {1, 2, 9};
    int64_t tokens;
    /* of six: 1 three times, 2 twice, 9 never */
    double want = -log(4.0 / 262) - log(3.0 / 262) - log(1.0 / 262);
    CHECK_NEAR(loss(1, learnt, 6, ids, 3, &tokens), want, 1e-12);
    CHECK(tokens == 3);
    /* after 1: 2 twice and 3 once; after 2: 1 twice, 9 never */
    want = -log(3.0 / 259) - log(1.0 / 258);
    CHECK_NEAR(loss(2, learnt, 6, ids, 3, &tokens), want, 1e-12);
    CHECK(tokens == 2);
    /* 1 2 twice, never followed by 9 */
    CHECK_NEAR(loss(3, learnt, 6, ids, 3, &tokens), -log(1.0 / 258), 1e-12);
    CHECK(tokens == 1);
}

TEST(ngram_with_an_unknown_context_is_uniform)
{
    const int32_t ids[] = {7, 8, 9, 10};
    int64_t tokens;
    for (int n = 1; n < 6; n++) {
        double all = loss(n, NULL, 0, ids, 4, &tokens);
        CHECK(tokens == (n < 5 ? 5 - n : 0));
        CHECK_NEAR(all, (double)tokens * log(256), 1e-12);
    }
}

TEST(ngram_distinguishes_many_ngrams)
{
    enum { COUNT = 100000 };
    int32_t *ids = heap(COUNT * sizeof *ids);
    struct ngram_score s = {0};
    struct ngram *g = ngram_make(2, COUNT);
    for (int i = 0; i < COUNT; i++) ids[i] = i;
    ngram_learn(g, ids, COUNT);
    ngram_learn(g, ids, COUNT);
    ngram_measure(g, ids, COUNT, &s);
    CHECK(s.tokens == COUNT - 1);
    CHECK_NEAR(s.loss_sum / (COUNT - 1), -log(3.0 / (COUNT + 2)), 1e-9);
    ngram_free(g);
    free(ids);
}
