// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"

#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

enum { HALF = PANEL / 2, ROW_BYTES = PANEL * sizeof(bf16) };

/* Loads 32 columns of a row.  A copy of constant size compiles to register moves; others are
 * slow. */
static inline void load_panel_row(const struct attention_rows *r, size_t row, size_t width,
                                  void *to)
{
    const bf16 *from = r->x + row * r->stride + width * r->panel_stride;
    if (row < r->count && r->K >= (width + 1) * PANEL) {
        memcpy(to, from, ROW_BYTES);
        return;
    }
    memset(to, 0, ROW_BYTES);
    if (row < r->count && r->K > width * PANEL)
        memcpy(to, from, (r->K - width * PANEL) * sizeof *from);
}

void KERNEL(attention_pack_left)(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t i = 0; i < PANEL; i++)
        for (size_t w = 0; w < r->head_panels; w++)
            load_panel_row(r, i, w, to + w * step + i * ROW_BYTES);
}

#if defined(__AVX512F__)
static bool is_full(const struct attention_rows *r)
{
    return r->count == PANEL && r->K == r->head_panels * PANEL;
}

static void pack_right_full(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t half = 0; half < 2; half++)
        for (size_t w = 0; w < r->head_panels; w++)
            for (size_t quarter = 0; quarter < 4; quarter++)
                pairs_transpose(
                    (const char *)(r->x + half * HALF * r->stride + w * r->panel_stride),
                    r->stride * sizeof *r->x, quarter, to + w * step + half * HALF * ROW_BYTES,
                    false);
}

static void pack_split_full(const struct attention_rows *r, char *to, size_t step)
{
    for (size_t i = 0; i < HALF; i++)
        for (size_t w = 0; w < r->head_panels; w++) {
            const bf16 *low = r->x + i * r->stride + w * r->panel_stride;
            char *words = to + w * step + i * ROW_BYTES;
            __m512i lines[2];
            pairs_interleave(low, low + HALF * r->stride, lines);
            pairs_store(words, lines[0], false),
                pairs_store(words + HALF * ROW_BYTES, lines[1], false);
        }
}
#endif

void KERNEL(attention_pack_right)(const struct attention_rows *r, char *to, size_t step)
{
#if defined(__AVX512F__)
    if (is_full(r)) {
        pack_right_full(r, to, step);
        return;
    }
#endif
    float words[PANEL][2][HALF]; /* 64 columns, transposed: [pair][32 rows] */
    for (size_t w = 0; w < r->head_panels; w += 2) {
        for (size_t i = 0; i < PANEL; i++)
            for (size_t of = 0; of < 2; of++) load_panel_row(r, i, w + of, words[i][of]);
        KERNEL(panel_transpose)(words[0][0]);
        for (size_t pair = 0; pair < PANEL && w + pair / HALF < r->head_panels; pair++)
            for (size_t half = 0; half < 2; half++)
                memcpy(to + (w + pair / HALF) * step + half * HALF * ROW_BYTES +
                           pair % HALF * ROW_BYTES,
                       words[pair][half], ROW_BYTES);
    }
}

void KERNEL(attention_pack_split)(const struct attention_rows *r, char *to, size_t step)
{
#if defined(__AVX512F__)
    if (is_full(r)) {
        pack_split_full(r, to, step);
        return;
    }
#endif
    for (size_t i = 0; i < HALF; i++)
        for (size_t w = 0; w < r->head_panels; w++) {
            bf16 low[PANEL], high[PANEL];
            uint32_t words[PANEL];
            load_panel_row(r, i, w, low), load_panel_row(r, HALF + i, w, high);
            for (size_t k = 0; k < PANEL; k++) words[k] = low[k] | (uint32_t)high[k] << 16;
            memcpy(to + w * step + i * ROW_BYTES, words, ROW_BYTES);
            memcpy(to + w * step + HALF * ROW_BYTES + i * ROW_BYTES, words + HALF, ROW_BYTES);
        }
}

void KERNEL(attention_pack_keys)(const struct attention_plan *p, const void *x, size_t at, char *to)
{
    size_t S = (size_t)p->a->S, bytes = p->head_panels * p->step_bytes;
    struct head_rows keys = {x, at, p->a->kv_stride, S};
    struct operand o = operand_of_rows(p, keys, false);
    if (!p->tiled) KERNEL(panel_pack)(&o, p->left, 0, p->key_panels, to);
    for (size_t s = 0; s < S && p->tiled; s += PANEL) {
        struct attention_rows r = panel_of_rows(p, keys, s);
        KERNEL(attention_pack_left)(&r, to + s / PANEL * bytes, p->step_bytes);
    }
}

#if defined(__AVX512F__)
/* Unpacks accumulators of 64 of K, [2][32 of K][32 queries], to 32 rows of bf16. */
static void unpack_pairs_full(const float *acc, const struct attention_unpack_to *to, size_t at)
{
    __m512i words[2][PANEL]; /* of each half of the queries: [pair] */
    bool nt_store = vector_is_aligned((bf16 *)to->x + at) && to->stride % PANEL == 0;
    for (size_t half = 0; half < 2; half++) {
        const float *from = acc + half * HALF;
        vector factor = vector_loadu(to->scale + half * HALF);
        for (size_t pair = 0; pair < PANEL; pair++, from += 2 * PANEL) {
            struct vectors x = {vector_loadu(from) * factor, vector_loadu(from + PANEL) * factor};
            vector_set_two(words[half] + pair, 0, BF16, x);
        }
    }
    for (size_t half = 0; half < 2; half++)
        for (size_t part = 0; part < 2; part++)
            for (size_t quarter = 0; quarter < 4; quarter++) {
                bf16 *row = (bf16 *)to->x + at + (half * HALF + 4 * quarter) * to->stride;
                __m512i transposed[4];
                pairs_load_transposed(&words[half][part * HALF], ROW_BYTES, quarter, transposed);
                for (size_t i = 0; i < 4; i++)
                    pairs_store((char *)(row + i * to->stride + part * to->panel_stride),
                                transposed[i], nt_store);
            }
}
#endif

/* Unpacks accumulators of K <= 64, [2][32 of K][32 queries], to `count` rows of bf16, transposing
 * pairs. */
static void unpack_pairs(const float *acc, size_t K, size_t count,
                         const struct attention_unpack_to *to, size_t at)
{
#if defined(__AVX512F__)
    if (K == 2 * PANEL && count == PANEL) {
        unpack_pairs_full(acc, to, at);
        return;
    }
#endif
    uint32_t words[PANEL][PANEL];
    size_t pairs = panel_count(K) * (PANEL / 2);
    if (pairs < PANEL) memset(words[pairs], 0, sizeof words / 2);
    for (size_t pair = 0; pair < pairs; pair++) {
        const float *low = acc + 2 * pair * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            words[pair][i] = bf16_rounded_bits(low[i] * to->scale[i]) >> 16 |
                             (bf16_rounded_bits(high[i] * to->scale[i]) & 0xFFFF0000u);
    }
    float transposed[MICRO_TILE];
    memcpy(transposed, words, sizeof transposed);
    KERNEL(panel_transpose)(transposed);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < K; k += PANEL) {
            bf16 *row = (bf16 *)to->x + at + i * to->stride + k / PANEL * to->panel_stride;
            memcpy(row, (bf16 *)(transposed + i * PANEL) + k, size_min(PANEL, K - k) * sizeof *row);
        }
}

void KERNEL(attention_unpack)(const struct attention_plan *p, float *acc, size_t count,
                              const struct attention_unpack_to *to)
{
    size_t all = (size_t)p->a->K;
    for (size_t k = 0; to->dtype == BF16 && k < all; k += 2 * PANEL)
        unpack_pairs(acc + k * PANEL, size_min(2 * PANEL, all - k), count, to,
                     to->at + k / PANEL * to->panel_stride);
    for (size_t w = 0; to->dtype == F32 && w < p->head_panels; w++) {
        float *panel = acc + w * MICRO_TILE;
        size_t K = size_min(PANEL, (size_t)p->a->K - w * PANEL);
        KERNEL(panel_transpose)(panel);
        for (size_t i = 0; i < count; i++) {
            size_t at = to->at + i * to->stride + w * to->panel_stride;
            float row[PANEL], old[PANEL] = {0};
            for (size_t k = 0; k < PANEL; k++) row[k] = panel[i * PANEL + k] * to->scale[i];
            if (to->old_scale) {
                vector_load(to->x, at, to->dtype, K, old);
                for (size_t k = 0; k < PANEL; k++) row[k] += to->old_scale[i] * old[k];
            }
            vector_store(to->x, at, to->dtype, K, row);
        }
    }
}
