/* panel_pack.c (cpu) -- packs matrices into micro-panels, 16 x 16 words of 32 bits at a time.
 *
 * A word is a pair of bf16 along K, or one bf16 widened to f32.  Blocks of words are read along the
 * rows of memory and, where the panel needs the other direction, transposed in registers. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { SIDE = 16 };

#if defined(__AVX2__) && !defined(__AVX512F__)
/* Loads 8 rows of 8 words that are `stride` bytes apart, transposed.  128-bit loads place the
 * halves, which leaves two rounds of unpacks. */
static inline void transpose_8x8(const char *from, size_t stride, __m256i to[8])
{
    for (size_t half = 0; half < 2; half++) {
        __m256i rows[4], pairs[4];
        for (size_t i = 0; i < 4; i++) {
            const char *at = from + i * stride + half * 16;
            __m128i low = _mm_loadu_si128((const __m128i *)at);
            rows[i] =
                _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                        _mm_loadu_si128((const __m128i *)(at + 4 * stride)), 1);
        }
        for (size_t i = 0; i < 2; i++) {
            pairs[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        for (size_t i = 0; i < 2; i++) {
            to[half * 4 + 2 * i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
            to[half * 4 + 2 * i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        }
    }
}
#endif

/* Transposes 16 x 16 words; row strides in bytes. */
static void transpose(const void *from, size_t from_row, void *to, size_t to_row)
{
#if defined(__AVX512F__)
    __m512i lines[SIDE];
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < 4; quarter++)
        pairs_load_transposed(from, from_row, quarter, lines + 4 * quarter);
#pragma GCC unroll 16
    for (size_t i = 0; i < SIDE; i++) pairs_store((char *)to + i * to_row, lines[i], false);
#elif defined(__AVX2__)
    /* all loads first: the transpose may be in place */
    __m256i blocks[2][2][8];
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 2; j++)
            transpose_8x8((const char *)from + i * 8 * from_row + j * 32, from_row, blocks[j][i]);
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = 0; j < 2; j++)
            _mm256_storeu_si256((__m256i *)((char *)to + i * to_row + j * 32),
                                blocks[i / 8][j][i % 8]);
#else
    uint32_t words[SIDE][SIDE], transposed[SIDE];
    for (size_t i = 0; i < SIDE; i++)
        memcpy(words[i], (const char *)from + i * from_row, sizeof *words);
    for (size_t i = 0; i < SIDE; i++) {
        for (size_t j = 0; j < SIDE; j++) transposed[j] = words[j][i];
        memcpy((char *)to + i * to_row, transposed, sizeof transposed);
    }
#endif
}

static void transpose_words(uint32_t words[SIDE][SIDE])
{
    transpose(words, sizeof *words, words, sizeof *words);
}

/* Vectors mn to mn + 15 and k to k + 31 of a K-major operand: words[vector][k / 2], zero past the
 * end. */
static void load_pairs(const struct operand *o, size_t mn, size_t k, uint32_t words[SIDE][SIDE])
{
    size_t mn_left = mn < o->mn_count ? o->mn_count - mn : 0, k_left = k < o->K ? o->K - k : 0;
    if (mn_left > SIDE) mn_left = SIDE;
    if (k_left > PANEL) k_left = PANEL;
    if (mn_left < SIDE || k_left < PANEL) memset(words, 0, SIDE * sizeof *words);
    const bf16 *x = o->x;
    for (size_t i = 0; i < mn_left; i++)
        memcpy(words[i], x + (mn + i) * o->stride + k, k_left * sizeof *x);
}

/* Vectors mn to mn + 31 of an MN-major operand: words[half][k / 2][vector]. */
static void load_pairs_mn_major(const struct operand *o, size_t mn, size_t k,
                                uint32_t words[2][SIDE][SIDE])
{
    size_t mn_left = mn < o->mn_count ? o->mn_count - mn : 0;
    const bf16 *x = o->x;
    for (size_t pair = 0; pair < SIDE; pair++) {
        size_t at = k + 2 * pair;
        bf16 rows[2][PANEL] = {0};
        const bf16 *low = rows[0], *high = rows[1];
        if (mn_left >= PANEL && at + 1 < o->K) {
            low = x + at * o->stride + mn, high = low + o->stride;
        } else {
            size_t bytes = (mn_left < PANEL ? mn_left : PANEL) * sizeof *x;
            if (at < o->K) memcpy(rows[0], x + at * o->stride + mn, bytes);
            if (at + 1 < o->K) memcpy(rows[1], x + (at + 1) * o->stride + mn, bytes);
        }
        for (size_t half = 0; half < 2; half++)
            for (size_t i = 0; i < SIDE; i++)
                words[half][pair][i] = low[half * SIDE + i] | (uint32_t)high[half * SIDE + i] << 16;
    }
}

/* Left panels are K-major and right panels MN-major; an operand stored the other way is
 * transposed. */
static void pack_pairs(const struct operand *o, bool right, size_t mn, size_t k,
                       uint32_t words[2][SIDE][SIDE])
{
    if (o->mn_major)
        load_pairs_mn_major(o, mn, k, words);
    else
        for (size_t half = 0; half < 2; half++) load_pairs(o, mn + half * SIDE, k, words[half]);
    if (o->mn_major != right)
        for (size_t half = 0; half < 2; half++) transpose_words(words[half]);
}

/* A full k-step of MN-major vectors. */
static void widen_full_step(const struct operand *o, size_t mn, size_t k, float *to)
{
    for (size_t i = 0; i < PANEL; i++)
        for (size_t j = 0; j < PANEL; j += LANES)
            vector_storeu(to + i * PANEL + j,
                          vector_get(o->x, (k + i) * o->stride + mn + j, o->dtype, LANES));
}

/* A full k-step of K-major vectors.  Pairs of bf16 are transposed, and then split. */
static void transpose_full_step(const struct operand *o, size_t mn, size_t k, float *to)
{
    const size_t row = o->stride * dtype_bytes(o->dtype), to_row = PANEL * sizeof *to;
    const char *from = (const char *)o->x + mn * row + k * dtype_bytes(o->dtype);
    vector_words words[SIDE * SIDE / LANES];
    for (size_t half = 0; half < PANEL; half += SIDE, from += SIDE * row) {
        if (o->dtype == F32) {
            transpose(from, row, to + half, to_row);
            transpose(from + SIDE * sizeof *to, row, to + SIDE * PANEL + half, to_row);
            continue;
        }
        transpose(from, row, words, SIDE * sizeof(uint32_t));
        for (size_t i = 0; i < SIDE * SIDE / LANES; i++) {
            float *at = to + i * LANES / SIDE * 2 * PANEL + half + i * LANES % SIDE;
            vector_storeu(at, (vector)(words[i] << 16));
            vector_storeu(at + PANEL, (vector)(words[i] & 0xFFFF0000u));
        }
    }
}

/* A k-step that ends past the matrix: a widened copy with zeros there, as an operand of its own. */
static struct operand pad_step(const struct operand *o, size_t mn, size_t k, float *to)
{
    size_t first = o->mn_major ? k : mn, rows = o->mn_major ? o->K : o->mn_count;
    size_t begin = o->mn_major ? mn : k, columns = o->mn_major ? o->mn_count : o->K;
    rows = first < rows ? rows - first : 0, columns = begin < columns ? columns - begin : 0;
    const vector zero = {0};
    for (size_t i = 0; i < PANEL; i++)
        for (size_t j = 0; j < PANEL; j += LANES) {
            size_t at = (first + i) * o->stride + begin + j;
            size_t n = i >= rows || j >= columns ? 0 : size_min(columns - j, LANES);
            vector v = zero;
            if (n && o->dtype == F32)
                v = vector_load_first((const float *)o->x + at, n);
            else if (n)
                v = vector_get(o->x, at, o->dtype, n);
            vector_storeu(to + i * PANEL + j, v);
        }
    return (struct operand){to, F32, PANEL, PANEL, PANEL, o->mn_major, false};
}

static void pack_floats(const struct operand *o, size_t mn, size_t k, float *to)
{
    float padded[MICRO_TILE];
    struct operand edge;
    if (mn + PANEL > o->mn_count || k + PANEL > o->K) {
        edge = pad_step(o, mn, k, padded);
        o = &edge, mn = k = 0;
    }
    if (o->mn_major)
        widen_full_step(o, mn, k, to);
    else
        transpose_full_step(o, mn, k, to);
}

/* One k-step of a panel of a paneled operand, as an operand of its own. */
static struct operand paneled_step(const struct operand *o, size_t panel, size_t step)
{
    size_t row = o->mn_major ? step : panel, column = o->mn_major ? panel : step;
    return (struct operand){.x = (const bf16 *)o->x + row * PANEL * o->stride + column * MICRO_TILE,
                            .dtype = BF16,
                            .mn_count = PANEL,
                            .K = PANEL,
                            .stride = PANEL,
                            .mn_major = o->mn_major};
}

static void pack_step(const struct operand *o, struct panel_format format, size_t mn, size_t k,
                      void *to)
{
    if (format.kind == PANEL_F32)
        pack_floats(o, mn, k, to);
    else
        pack_pairs(o, format.right, mn, k, to);
}

/* Prefetches what panel i of `count` packs from f32 a step or two later, in runs that are as long
 * as the layout allows. */
static void prefetch_floats(const struct operand *o, size_t first, size_t count, size_t i,
                            size_t step)
{
    const float *x = o->x;
    size_t begin = 0, end = PANEL, run = PANEL;
    if (o->mn_major) {
        x += (step + 1) * PANEL * o->stride + first * PANEL;
        begin = PANEL * i / count, end = PANEL * (i + 1) / count, run *= count;
    } else {
        x += (first + i) * PANEL * o->stride + (step + 2) * PANEL;
    }
    for (size_t row = begin; row < end; row++)
        for (size_t at = 0; at < run; at += 64 / sizeof *x)
            __builtin_prefetch(x + row * o->stride + at, 0, 2);
}

#if defined(__AVX512F__)
/* A full panel of K-major rows: copied row by row, which suits the hardware prefetcher. */
static void copy_full_panel(const struct operand *o, const struct panel_format *format, size_t mn,
                            size_t steps, char *to)
{
    for (size_t i = 0; i < PANEL; i++) {
        const bf16 *row = (const bf16 *)o->x + (mn + i) * o->stride;
        for (size_t step = 0; step < steps; step++) {
            const bf16 *x = row + step * PANEL;
            __builtin_prefetch(x + 2 * o->stride, 0, 2);
            pairs_store(to + step * PANEL * PANEL * sizeof *x + i * 64, _mm512_loadu_si512(x),
                        format->stream);
        }
    }
}

/* Prefetches what panel i of `count` packs a step or two later, in runs that are as long as the
 * layout allows. */
static void prefetch_ahead(const struct operand *o, size_t first, size_t count, size_t i,
                           size_t step)
{
    const bf16 *x = o->x;
    if (o->paneled) {
        size_t n = i + 2;
        x = o->mn_major ? paneled_step(o, first + n % count, step + n / count).x
                        : paneled_step(o, first + i, step + 2).x;
        for (size_t row = 0; row < PANEL; row++) __builtin_prefetch(x + row * PANEL, 0, 2);
    } else if (o->mn_major) {
        x += (step + 1) * PANEL * o->stride + first * PANEL;
        for (size_t row = PANEL * i / count; row < PANEL * (i + 1) / count; row++)
            for (size_t k = 0; k < count; k++)
                __builtin_prefetch(x + row * o->stride + k * PANEL, 0, 2);
    } else {
        x += (first + i) * PANEL * o->stride + (step + 2) * PANEL;
        for (size_t row = 0; row < PANEL; row++) __builtin_prefetch(x + row * o->stride, 0, 2);
    }
}

/* A full k-step that is interleaved (VNNI), transposed, or both. */
static void pack_full_step(const struct operand *o, const struct panel_format *format, size_t mn,
                           size_t k, char *to)
{
    const bf16 *x = (const bf16 *)o->x + (o->mn_major ? k * o->stride + mn : mn * o->stride + k);
    char words[2][SIDE][64] __attribute__((aligned(64)));
    size_t row = o->stride * sizeof *x;
    for (size_t pair = 0; pair < SIDE && o->mn_major; pair++) {
        __m512i lines[2];
        pairs_interleave(x + 2 * pair * o->stride, x + (2 * pair + 1) * o->stride, lines);
        for (size_t half = 0; half < 2; half++)
            if (format->right)
                pairs_store(to + half * 1024 + pair * 64, lines[half], format->stream);
            else
                _mm512_store_si512(words[half][pair], lines[half]);
    }
    if (o->mn_major == format->right) return;
    for (size_t n = 0; n < 8; n++)
        if (o->mn_major)
            pairs_transpose(words[n / 4][0], 64, n % 4, to + n / 4 * 1024, format->stream);
        else
            pairs_transpose((const char *)x + n / 4 * SIDE * row, row, n % 4, to + n / 4 * 1024,
                            format->stream);
}
#endif

void KERNEL(panel_pack)(const struct operand *o, struct panel_format format, size_t first,
                        size_t count, void *to)
{
    size_t steps = panel_count(o->K), bytes = panel_step_bytes(format.kind);
    size_t panel = (format.steps ? format.steps : steps) * bytes;
#if defined(__AVX512F__)
    bool full =
        format.kind == PANEL_BF16 && (first + count) * PANEL <= o->mn_count && o->K % PANEL == 0;
    if (full && !o->mn_major && !format.right && !o->paneled) {
        for (size_t i = 0; i < count; i++)
            copy_full_panel(o, &format, (first + i) * PANEL, steps, (char *)to + i * panel);
        return;
    }
#endif
    float staging[MICRO_TILE] __attribute__((aligned(64))); /* one k-step of either kind */
    for (size_t n = 0; n < steps * count; n++) {
        /* in memory order: panels innermost where they share rows of memory, else k-steps */
        size_t step = o->mn_major ? n / count : n % steps, i = o->mn_major ? n % count : n / steps;
        char *dest = (char *)to + i * panel + step * bytes;
        struct operand from = o->paneled ? paneled_step(o, first + i, step) : *o;
        size_t mn = o->paneled ? 0 : (first + i) * PANEL, k = o->paneled ? 0 : step * PANEL;
#if defined(__AVX512F__)
        if (format.kind == PANEL_BF16 && mn + PANEL <= from.mn_count && k + PANEL <= from.K &&
            o->mn_major + format.right) {
            prefetch_ahead(o, first, count, i, step);
            pack_full_step(&from, &format, mn, k, dest);
            continue;
        }
#endif
        if (o->dtype == F32 && format.prefetch) prefetch_floats(o, first, count, i, step);
        pack_step(&from, format, mn, k, format.stream ? staging : (void *)dest);
        for (size_t at = 0; format.stream && at < bytes; at += 64)
            vector_stream_line(dest + at, (const char *)staging + at);
    }
}

bool KERNEL(panel_layout_used)(bool is_packed, enum dtype dtype, int rows, int columns)
{
#if defined(TILES)
    return is_packed && dtype == BF16 && rows % PANEL == 0 && rows > DECODE_MAX_ROWS &&
           columns % PANEL == 0;
#else
    (void)is_packed, (void)dtype, (void)rows, (void)columns;
    return false;
#endif
}

void KERNEL(tile_transpose)(float *tile)
{
    transpose(tile, SIDE * sizeof *tile, tile, SIDE * sizeof *tile);
}

void KERNEL(panel_transpose)(float *tile)
{
    const size_t row = PANEL * sizeof *tile, side = SIDE * sizeof *tile;
    float *right = tile + SIDE, *lower = tile + SIDE * PANEL, saved[SIDE * SIDE];
    transpose(tile, row, tile, row);
    transpose(lower + SIDE, row, lower + SIDE, row);
    transpose(right, row, saved, side);
    transpose(lower, row, right, row);
    for (size_t i = 0; i < SIDE; i++) memcpy(lower + i * PANEL, saved + i * SIDE, side);
}
