/* attention_pack.h -- up to 32 rows of bf16, as a panel of pairs that the tiles of attention read.
 *
 * Rows [count][K] are `stride` elements apart; what is not there of 32 rows and widths * 32 columns
 * is zero.  Step w of a panel goes to `to` + w * step bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"

#include <stddef.h>

struct attention_rows {
    const bf16 *x;
    size_t stride, count, K, widths;
};

/* A left panel whose lines are the rows, and a right one. */
void KERNEL(attention_pack_left)(const struct attention_rows *r, char *to, size_t step);
void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step);
/* Right panels whose lines are the columns: pairs are of rows i and 16 + i. */
void KERNEL(attention_pack_split)(const struct attention_rows *r, char *to, size_t step);
