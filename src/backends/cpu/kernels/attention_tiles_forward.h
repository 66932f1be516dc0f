/* attention_tiles_forward.h -- attention forward on AMX: one panel of queries over a range of key
 * panels. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_mask.h"
#include "backends/cpu/kernels/attention_prefetch.h"
#include "backends/cpu/kernels/tiles.h"

enum { FORWARD_GROUP = 4 }; /* key panels whose probs meet their values in one matrix multiply */

/* bf16 panels (panel.h). */
struct tiles_forward {
    size_t head_panels, key_panels; /* along K, along S */
    const char *keys, *values;      /* left: [key_panels][head_panels]; [head_panels][key_panels] */
    const char *queries;            /* right, [head_panels] */
    float *scores;                  /* [2][32 keys][32 queries], and a third to discard into */
    char *probs;                    /* right, [2 FORWARD_GROUP] */
    float *out;       /* [head_panels][32 of K][32 queries]: accumulated probs times values */
    float scale_log2; /* scale of scores times log2(e); positive */
    struct attention_prefetch prefetch;
    /* Online softmax: probs are 2^((score - row_max) scale_log2 - headroom), so that sums cannot
     * overflow. */
    float row_max[PANEL], sum[PANEL], headroom;
};

/* Key panels [begin, end).  The caller sets sum to 0 and row_max to a very low value.  This thread
 * must have configured the tiles. */
void KERNEL(attention_tiles_forward)(struct tiles_forward *p, const struct attention_mask *s,
                                     size_t begin, size_t end);
