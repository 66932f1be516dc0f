/* attention_mask.h -- causal, sliding-window and document masks of a panel of queries, as ranges of
 * visible keys.
 *
 * A panel whose queries see disjoint ranges visits the keys in between, too; they are masked. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"
#include "ops/attention.h"

#include <math.h>

/* What masks are computed from; start_BT and end_BT are document bounds, or both NULL. */
struct mask_source {
    const struct attention *a;
    const int32_t *start_BT, *end_BT;
};

/* Keys [begin, end) that are visible to query t of row b. */
struct key_range {
    int32_t begin, end;
};
static inline struct key_range visible_keys(const struct mask_source *s, size_t b, size_t t)
{
    const struct attention *a = s->a;
    size_t at = b * (size_t)a->T + t;
    int32_t causal_end = (int32_t)t + a->S - a->T + 1;
    struct key_range range = {s->start_BT ? s->start_BT[at] : 0, s->end_BT ? s->end_BT[at] : a->S};
    if (a->causal && range.end > causal_end) range.end = causal_end;
    if (a->window && range.begin < causal_end - a->window) range.begin = causal_end - a->window;
    return range;
}

/* Keys [begin, end) visible to each query of a panel, to any of them, and to all of them. */
struct attention_mask {
    int32_t begin[PANEL], end[PANEL];
    int32_t any_begin, any_end, all_begin, all_end;
};

/* Of the panel of queries that starts at query `first` of row b. */
static inline void attention_mask_init(struct attention_mask *m, const struct mask_source *s,
                                       size_t b, size_t first)
{
    const struct attention *a = s->a;
    m->any_begin = a->S, m->any_end = 0, m->all_begin = 0, m->all_end = a->S;
    for (size_t i = 0; i < PANEL; i++) {
        struct key_range range = {0, 0};
        if (first + i < (size_t)a->T) {
            range = visible_keys(s, b, first + i);
            bool none = range.begin >= range.end;
            if (!none && range.begin < m->any_begin) m->any_begin = range.begin;
            if (!none && range.end > m->any_end) m->any_end = range.end;
        }
        m->begin[i] = range.begin, m->end[i] = range.end;
        if (range.begin > m->all_begin) m->all_begin = range.begin;
        if (range.end < m->all_end) m->all_end = range.end;
    }
}

/* Whether any query sees any key of the key panel. */
static inline bool attention_mask_sees(const struct attention_mask *m, size_t panel)
{
    int32_t first = (int32_t)(panel * PANEL);
    return first < m->any_end && first + PANEL > m->any_begin;
}

/* Sets masked scores to -inf. */
static inline void attention_mask_apply(const struct attention_mask *m, size_t panel, float *scores)
{
    int32_t first = (int32_t)(panel * PANEL);
    if (first >= m->all_begin && first + PANEL <= m->all_end) return;
    for (int32_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (int i = 0; i < PANEL; i++) {
            float x = scores[k * PANEL + i];
            int visible = (first + k >= m->begin[i]) & (first + k < m->end[i]);
            scores[k * PANEL + i] = visible ? x : -INFINITY;
        }
}
