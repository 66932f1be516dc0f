/* attention_pack.h -- rows of attention to panels, and sums to rows.
 *
 * What is not there of 32 rows and widths * 32 columns is zero.  Step w of a panel goes to
 * `to` + w * step bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/attention_plan.h"

/* A left panel whose lines are the rows, and a right one. */
void KERNEL(attention_pack_left)(const struct attention_rows *r, char *to, size_t step);
void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step);
/* Right panels whose lines are the columns: pairs are of rows i and 16 + i. */
void KERNEL(attention_pack_split)(const struct attention_rows *r, char *to, size_t step);

/* Rows of keys as left panels. */
void KERNEL(attention_pack_keys)(const struct attention_plan *p, const void *x, size_t at,
                                 char *to);

/* Rows of x become factor times sums, and `kept` times what they were. */
struct attention_unpack_to {
    void *x;
    size_t at, stride,
        panel_stride; /* elements: to the first, between rows, between 32 and the next 32 */
    enum dtype dtype;
    const float *scale, *old_scale; /* of each row; kept NULL: 0 */
};

/* Sums [widths][32 of K][32 queries] to `count` rows; uses up the sums. */
void KERNEL(attention_unpack)(const struct attention_plan *p, float *acc, size_t count,
                              const struct attention_unpack_to *to);
