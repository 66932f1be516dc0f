// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"

#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

enum { HALF = PANEL / 2, BYTES = PANEL * sizeof(bf16) };

/* 32 columns of a row.  A copy of known size is a register's, others are slow. */
static inline void take(const struct attention_rows *r, size_t row, size_t width, void *to)
{
    const bf16 *from = r->x + row * r->stride + width * r->width;
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

#if defined(__AVX512F__)
static bool is_whole(const struct attention_rows *r)
{
    return r->count == PANEL && r->K == r->widths * PANEL;
}

static void pack_right_whole(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t w = 0; w < r->widths; w++)
            for (size_t quarter = 0; quarter < 4; quarter++)
                pairs_turn((const char *)(r->x + half * HALF * r->stride + w * r->width),
                           r->stride * sizeof *r->x, quarter, to + w * step + half * HALF * BYTES,
                           false);
}

static void pack_split_whole(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t i = 0; i < HALF; i++)
        for (size_t w = 0; w < r->widths; w++) {
            const bf16 *low = r->x + i * r->stride + w * r->width;
            char *words = to + w * step + i * BYTES;
            __m512i lines[2];
            pairs_join(low, low + HALF * r->stride, lines);
            pairs_put(words, lines[0], false), pairs_put(words + HALF * BYTES, lines[1], false);
        }
}
#endif

void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step)
{
#if defined(__AVX512F__)
    if (is_whole(r)) {
        pack_right_whole(r, to, step);
        return;
    }
#endif
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
#if defined(__AVX512F__)
    if (is_whole(r)) {
        pack_split_whole(r, to, step);
        return;
    }
#endif
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
    struct lines l = rows(p, x, at, a->kv_stride, S, false);
    if (!p->tiled) KERNEL(panel_pack)(&l, p->left, 0, p->keys, to);
    for (size_t s = 0; s < S && p->tiled; s += PANEL) {
        struct attention_rows r = rows_of(p, x, at, a->kv_stride, S, s);
        KERNEL(attention_pack_left)(&r, to + s / PANEL * bytes, p->step);
    }
}

#if defined(__AVX512F__)
/* Sums of 64 of K, [2][32 of K][32 queries], to 32 rows of bf16. */
static void put_pairs_whole(const float *sums, const struct rows_put *to, size_t at)
{
    __m512i words[2][PANEL]; /* of each half of the queries: [pair] */
    bool lines = vector_is_line((bf16 *)to->x + at) && to->stride % PANEL == 0;
    for (size_t half = 0; half < 2; half++) {
        const float *from = sums + half * HALF;
        vector factor = vector_at(to->factor + half * HALF);
        for (size_t pair = 0; pair < PANEL; pair++, from += 2 * PANEL) {
            struct vectors x = {vector_at(from) * factor, vector_at(from + PANEL) * factor};
            vector_set_two(words[half] + pair, 0, BF16, x);
        }
    }
    for (size_t half = 0; half < 2; half++)
        for (size_t part = 0; part < 2; part++)
            for (size_t quarter = 0; quarter < 4; quarter++) {
                bf16 *row = (bf16 *)to->x + at + (half * HALF + 4 * quarter) * to->stride;
                __m512i turned[4];
                pairs_turned(&words[half][part * HALF], BYTES, quarter, turned);
                for (size_t i = 0; i < 4; i++)
                    pairs_put((char *)(row + i * to->stride + part * to->width), turned[i], lines);
            }
}
#endif

/* Sums of K <= 64, [2][32 of K][32 queries], to `count` rows of bf16: turned as pairs. */
static void put_pairs(const float *sums, size_t K, size_t count, const struct rows_put *to,
                      size_t at)
{
#if defined(__AVX512F__)
    if (K == 2 * PANEL && count == PANEL) {
        put_pairs_whole(sums, to, at);
        return;
    }
#endif
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
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < K; k += PANEL) {
            bf16 *row = (bf16 *)to->x + at + i * to->stride + k / PANEL * to->width;
            memcpy(row, (bf16 *)(turned + i * PANEL) + k, least(PANEL, K - k) * sizeof *row);
        }
}

void KERNEL(attention_put)(const struct plan *p, float *sums, size_t count,
                           const struct rows_put *to)
{
    size_t all = (size_t)p->a->K;
    for (size_t k = 0; to->dtype == BF16 && k < all; k += 2 * PANEL)
        put_pairs(sums + k * PANEL, least(2 * PANEL, all - k), count, to,
                  to->at + k / PANEL * to->width);
    for (size_t w = 0; to->dtype == F32 && w < p->widths; w++) {
        float *panel = sums + w * SUMS;
        size_t K = least(PANEL, (size_t)p->a->K - w * PANEL);
        KERNEL(panel_turn)(panel);
        for (size_t i = 0; i < count; i++) {
            size_t at = to->at + i * to->stride + w * to->width;
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
