/* attention_pass.h -- a panel of queries passes over keys and values where there are tiles: scores
 * of the next panel of keys and values of earlier ones are multiplied while this one's are
 * softened. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/attention_prefetch.h"
#include "backends/cpu/kernels/tiles.h"

enum { FORWARD_GROUP = 4 }; /* panels of keys whose values are met at once, at most */

/* Panels as panel.h has them, of pairs. */
struct tiles_forward {
    size_t head_panels, key_panels; /* panels along K, along S */
    const char *keys, *values;      /* of keys, [keys][widths]; of values, [widths][keys] */
    const char *queries;            /* right, [widths] */
    float *scores;                  /* [2][32 keys][32 queries], and as many for nothing */
    char *probs;                    /* right, [2 PASS_GROUP] */
    float *out;                     /* [widths][32 of K][32 queries]; sums of odds times values */
    float scale_log2;               /* of scores, positive */
    struct attention_prefetch prefetch;
    /* odds are 2^((score - top) factor - room): sums of theirs stay far from where numbers end */
    float row_max[PANEL], sum[PANEL], headroom;
};

/* Panels [begin, end) of keys; sums start at 0 and tops very low.  This thread has opened tiles. */
void KERNEL(attention_tiles_forward)(struct tiles_forward *p, const struct attention_mask *s,
                                     size_t begin, size_t end);
