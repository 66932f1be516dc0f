/* attention_sight.h -- which keys the queries of a panel see: what masks come to, for whole panels.
 *
 * Where a panel's queries see keys that are not next to each other, so does it see those between:
 * it meets them, and the mask takes them away. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_few.h"
#include "backends/cpu/kernels/panel.h"

#include <math.h>

/* Keys [begin, end) that each query of a panel sees, and that any or every one of them sees. */
struct sight {
    int32_t begin[PANEL], end[PANEL];
    int32_t some_begin, some_end, every_begin, every_end;
};

static inline void look(const struct attention *a, const int32_t *start, const int32_t *end,
                        size_t b, size_t first, struct sight *s)
{
    s->some_begin = a->S, s->some_end = 0, s->every_begin = 0, s->every_end = a->S;
    for (size_t i = 0; i < PANEL; i++) {
        struct key_range seen = {0, 0};
        if (first + i < (size_t)a->T) {
            seen = keys_seen(a, start, end, b, first + i);
            bool none = seen.begin >= seen.end;
            if (!none && seen.begin < s->some_begin) s->some_begin = seen.begin;
            if (!none && seen.end > s->some_end) s->some_end = seen.end;
        }
        s->begin[i] = seen.begin, s->end[i] = seen.end;
        if (seen.begin > s->every_begin) s->every_begin = seen.begin;
        if (seen.end < s->every_end) s->every_end = seen.end;
    }
}

/* Whether some query sees some key of the panel. */
static inline bool is_seen(const struct sight *s, size_t panel)
{
    int32_t first = (int32_t)(panel * PANEL);
    return first < s->some_end && first + PANEL > s->some_begin;
}

/* Scores that the mask forbids become -inf. */
static inline void mask(const struct sight *s, size_t panel, float *scores)
{
    int32_t first = (int32_t)(panel * PANEL);
    if (first >= s->every_begin && first + PANEL <= s->every_end) return;
    for (int32_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (int i = 0; i < PANEL; i++) {
            float x = scores[k * PANEL + i];
            int open = (first + k >= s->begin[i]) & (first + k < s->end[i]);
            scores[k * PANEL + i] = open ? x : -INFINITY;
        }
}
