/* sampling.h -- which token comes next.
 *
 * Units    temperature divides the logits; 0 takes the likeliest token (the lowest id on ties).
 *          top_k keeps the k likeliest (0: all), then top_p the smallest set of the likeliest that
 *          holds that probability (Holtzman et al. 2020; 1: all).
 * Memory   `order` is the caller's, V entries of working memory.
 * Order    The draw is a pure function of (seed, position). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

struct sampling {
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
};

struct candidate {
    float logit;
    int32_t id;
};

int32_t sampling_pick(const struct sampling *s, const float *logits_V, int V, uint64_t position,
                      struct candidate *order_V);
