/* attention_back.h -- gradients where there are tiles: a group of panels of queries of one head
 * passes over the panels of keys it sees. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/attention_prefetch.h"
#include "backends/cpu/kernels/tiles.h"

enum {
    BACKWARD_GROUP = 8
}; /* panels of queries at most, and panels of keys that meet them at once */

/* Panels as panel.h has them, of pairs; "split" ones are right panels along queries whose pairs are
 * of queries i and 16 + i. */
struct tiles_backward {
    size_t head_panels, key_panels, query_panels; /* panels along K, along S, of queries */
    const char *keys, *keys_transposed,
        *values;                            /* [keys][widths], [widths][keys], [keys][widths] */
    const char *queries, *dout;             /* right, [panels][widths] */
    const char *queries_split, *dout_split; /* [widths][panels] */
    char *probs, *dscores;                  /* left, [2][BACK_GROUP] */
    char *dscores_right;                    /* right, [panels][BACK_GROUP] */
    float *dkeys, *dvalues;                 /* [keys][widths] sums, added to */
    float *dqueries;                        /* [panels][widths] sums, turned; added to */
    float *scores, *dprobs;                 /* [2][32 keys][32 queries], and as many for nothing */
    float scale;                            /* of scores, positive */
    const float *lse, *delta;               /* of each query */
    struct attention_prefetch prefetch[3];
};

/* dvalues += odds^T dout, dkeys += dscores^T queries, dqueries += dscores keys, where
 * odds = e^(scale scores - lse), dscores = odds (values dout^T - delta): still without scale. */
void KERNEL(attention_tiles_backward)(struct tiles_backward *b, const struct attention_mask *masks);
