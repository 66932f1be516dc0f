/* attention_tiles_backward.h -- attention backward on AMX: a group of query panels of one head
 * times the key panels that it sees. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/attention_prefetch.h"
#include "backends/cpu/kernels/tiles.h"

enum { BACKWARD_GROUP = 8 }; /* query panels at most, and key panels per update of dq */

/* bf16 panels (panel.h).  "split": right panels along queries, in which pairs are queries i and 16
 * + i. */
struct tiles_backward {
    size_t head_panels, key_panels, query_panels; /* along K, along S, of queries */
    const char *keys, *keys_transposed,
        *values; /* [key_panels][head_panels], [head_panels][key_panels], [key_panels][head_panels]
                  */
    const char *queries, *dout;             /* right, [query_panels][head_panels] */
    const char *queries_split, *dout_split; /* [head_panels][query_panels] */
    char *probs, *dscores;                  /* left, [2][BACKWARD_GROUP] */
    char *dscores_right;                    /* right, [query_panels][BACKWARD_GROUP] */
    float *dkeys, *dvalues;                 /* [key_panels][head_panels], added to */
    float *dqueries;                        /* transposed, [query_panels][head_panels], added to */
    float *scores, *dprobs;   /* [2][32 keys][32 queries]; scores with a third, to discard into */
    float scale;              /* of scores, positive */
    const float *lse, *delta; /* of each query */
    struct attention_prefetch prefetch[3];
};

/* dvalues += probs^T dout, dkeys += dscores^T queries, dqueries += dscores keys, where probs =
 * e^(scale scores - lse), dscores = probs (values dout^T - delta); the caller multiplies by scale.
 * This thread must have configured the tiles. */
void KERNEL(attention_tiles_backward)(struct tiles_backward *b, const struct attention_mask *masks);
