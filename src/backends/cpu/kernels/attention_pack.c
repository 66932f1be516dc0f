// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"

#include "backends/cpu/kernels/vector.h"

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

/* Rows of keys as left panels. */
void KERNEL(attention_pack_keys)(const struct plan *p, const void *x, size_t at, char *to)
{
    const struct attention *a = p->a;
    size_t S = (size_t)a->S, bytes = p->widths * p->step;
    struct lines l = rows(a, x, at, a->kv_stride, S, false);
    if (!p->tiled) KERNEL(panel_pack)(&l, p->left, 0, p->keys, to);
    for (size_t s = 0; s < S && p->tiled; s += PANEL) {
        struct attention_rows r = rows_of(p, x, at, a->kv_stride, S, s);
        KERNEL(attention_pack_left)(&r, to + s / PANEL * bytes, p->step);
    }
}

/* Sums of 64 of K, [2][32 of K][32 queries], to `count` rows of bf16: turned as pairs. */
static void put_pairs(const float *sums, size_t K, size_t count, const struct rows_put *to,
                      size_t at)
{
    uint32_t words[PANEL][PANEL];
    size_t pairs = panels_of(K) * (PANEL / 2);
    if (pairs < PANEL) memset(words[pairs], 0, sizeof words / 2);
    for (size_t pair = 0; pair < pairs; pair++) {
        const float *low = sums + 2 * pair * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            words[pair][i] = rounded(low[i] * to->factor[i]) >> 16 |
                             (rounded(high[i] * to->factor[i]) & 0xFFFF0000u);
    }
    float turned[SUMS];
    memcpy(turned, words, sizeof turned);
    KERNEL(panel_turn)(turned);
    for (size_t i = 0; i < count; i++) {
        bf16 *row = (bf16 *)to->x + at + i * to->stride;
        if (K == 2 * PANEL) /* a copy of known size is a register's, others are slow */
            memcpy(row, turned + i * PANEL, PANEL * sizeof *turned);
        else
            memcpy(row, turned + i * PANEL, K * sizeof *row);
    }
}

void KERNEL(attention_put)(const struct plan *p, float *sums, size_t count,
                           const struct rows_put *to)
{
    size_t all = (size_t)p->a->K;
    for (size_t k = 0; to->dtype == BF16 && k < all; k += 2 * PANEL)
        put_pairs(sums + k * PANEL, least(2 * PANEL, all - k), count, to, to->at + k);
    for (size_t w = 0; to->dtype == F32 && w < p->widths; w++) {
        float *panel = sums + w * SUMS;
        size_t K = least(PANEL, (size_t)p->a->K - w * PANEL);
        KERNEL(panel_turn)(panel);
        for (size_t i = 0; i < count; i++) {
            size_t at = to->at + i * to->stride + w * PANEL;
            float row[PANEL], old[PANEL] = {0};
            for (size_t k = 0; k < PANEL; k++) row[k] = panel[i * PANEL + k] * to->factor[i];
            if (to->kept) {
                vector_load(to->x, at, to->dtype, K, old);
                for (size_t k = 0; k < PANEL; k++) row[k] += to->kept[i] * old[k];
            }
            vector_store(to->x, at, to->dtype, K, row);
        }
    }
}
