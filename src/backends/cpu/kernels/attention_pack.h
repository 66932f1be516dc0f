/* attention_pack.h -- packs rows of queries, keys and values into micro-panels, and unpacks
 * accumulators to rows.
 *
 * Panels are zero-padded to 32 rows and head_panels * 32 columns.  k-step w of a panel is stored at
 * `to` + w * step bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_plan.h"

/* Packs a left panel from rows, and a right panel. */
void KERNEL(attention_pack_left)(const struct attention_rows *r, char *to, size_t step);
void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step);
/* Packs right panels of the transposed matrix, in which pairs are rows i and 16 + i ("split"). */
void KERNEL(attention_pack_split)(const struct attention_rows *r, char *to, size_t step);

/* Packs rows of keys as left panels. */
void KERNEL(attention_pack_keys)(const struct attention_plan *p, const void *x, size_t at,
                                 char *to);

/* Destination: x = scale * accumulators + old_scale * x, per row. */
struct attention_unpack_to {
    void *x;
    size_t at, stride,
        panel_stride; /* in elements: to the first, from row to row, from 32 columns to the next */
    enum dtype dtype;
    const float *scale, *old_scale; /* of each row; old_scale NULL: 0 */
};

/* Unpacks accumulators [head_panels][32 of K][32 queries] to `count` rows; overwrites them. */
void KERNEL(attention_unpack)(const struct attention_plan *p, float *acc, size_t count,
                              const struct attention_unpack_to *to);
