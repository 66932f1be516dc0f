// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"

#include "backends/cpu/kernels/panel.h"

#include <string.h>

enum { HALF = PANEL / 2, BYTES = PANEL * sizeof(bf16) };

/* 32 columns of a row.  A copy of known size is a register's, others are slow. */
static inline void take(const struct attention_rows *r, size_t row, size_t width, void *to)
{
    const bf16 *from = r->x + row * r->stride + width * PANEL;
    if (row < r->count && r->K >= (width + 1) * PANEL) {
        memcpy(to, from, BYTES);
        return;
    }
    memset(to, 0, BYTES);
    if (row < r->count && r->K > width * PANEL)
        memcpy(to, from, (r->K - width * PANEL) * sizeof *from);
}

void KERNEL(attention_pack_left)(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t i = 0; i < PANEL; i++)
        for (size_t w = 0; w < r->widths; w++) take(r, i, w, to + w * step + i * BYTES);
}

void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step)
{
    float words[PANEL][2][HALF]; /* of 64 columns, turned: [pair][32 rows] */
    for (size_t w = 0; w < r->widths; w += 2) {
        for (size_t i = 0; i < PANEL; i++)
            for (size_t of = 0; of < 2; of++) take(r, i, w + of, words[i][of]);
        KERNEL(panel_turn)(words[0][0]);
        for (size_t pair = 0; pair < PANEL && w + pair / HALF < r->widths; pair++)
            for (size_t half = 0; half < 2; half++)
                memcpy(to + (w + pair / HALF) * step + half * HALF * BYTES + pair % HALF * BYTES,
                       words[pair][half], BYTES);
    }
}

void KERNEL(attention_pack_split)(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t i = 0; i < HALF; i++)
        for (size_t w = 0; w < r->widths; w++) {
            bf16 low[PANEL], high[PANEL];
            uint32_t words[PANEL];
            take(r, i, w, low), take(r, HALF + i, w, high);
            for (size_t k = 0; k < PANEL; k++) words[k] = low[k] | (uint32_t)high[k] << 16;
            memcpy(to + w * step + i * BYTES, words, BYTES);
            memcpy(to + w * step + HALF * BYTES + i * BYTES, words + HALF, BYTES);
        }
}
