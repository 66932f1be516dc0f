/* sampling.h -- picks the next token: greedy, temperature, top-k and top-p (nucleus) sampling.
 *
 * Units    temperature divides the logits; 0 is greedy (ties: the lowest id).  top_k keeps the k
 *          most likely tokens (0: all); of these top_p keeps the smallest set of the most likely
 *          that reaches that probability (Holtzman et al. 2020; 1: all).  Then min_p drops tokens
 *          less likely than this fraction of the most likely one (0: none).
 * Memory   `order_V` is working memory of the caller's.
 * Order    The draw is a pure function of (seed, position). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sampling {
    double temperature, top_p, min_p;
    int64_t top_k;
    uint64_t seed;
};

struct candidate {
    float logit;
    int32_t id;
};

struct sampling_penalty {
    double by; /* above 0 */
    const int32_t *ids;
    size_t count;
};
/* Copies the logits; divides those of the tokens that occur in `ids` by the penalty, or multiplies
 * those below 0 (Keskar et al. 2019). */
void sampling_penalize(const struct sampling_penalty *p, const float *logits_V, int V,
                       float *penalized_V);
/* log(sum(exp(logits))): a logit minus this is the log-probability of its token. */
double sampling_log_sum(const float *logits_V, int V);
/* The token for that position of the text. */
int32_t sampling_pick(const struct sampling *s, const float *logits_V, int V, uint64_t position,
                      struct candidate *order_V);
