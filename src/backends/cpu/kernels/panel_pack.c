/* panel_pack.c (cpu) -- matrices to panels, 16 x 16 words of 32 bits at a time.
 *
 * A word is a pair of bf16 along K, or one bf16 widened to f32.  Blocks of words are read from rows
 * of memory and, where lines run the other way than the panel wants them, turned in registers. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/panel_pairs.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { SIDE = 16 };

/* Exchanges rows and columns of 16 x 16 words, whose rows are so many bytes apart. */
static void turn(const void *from, size_t from_row, void *to, size_t to_row)
{
#if defined(__AVX512F__)
    __m512i lines[SIDE];
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < 4; quarter++)
        pairs_turned(from, from_row, quarter, lines + 4 * quarter);
#pragma GCC unroll 16
    for (size_t i = 0; i < SIDE; i++) pairs_put((char *)to + i * to_row, lines[i], false);
#else
    uint32_t words[SIDE][SIDE], turned[SIDE];
    for (size_t i = 0; i < SIDE; i++)
        memcpy(words[i], (const char *)from + i * from_row, sizeof *words);
    for (size_t i = 0; i < SIDE; i++) {
        for (size_t j = 0; j < SIDE; j++) turned[j] = words[j][i];
        memcpy((char *)to + i * to_row, turned, sizeof turned);
    }
#endif
}

static void turn_words(uint32_t words[SIDE][SIDE])
{
    turn(words, sizeof *words, words, sizeof *words);
}

/* 16 lines from `line`, 32 k from `k`: words[line][k / 2], zero past the end. */
static void read_pairs(const struct lines *l, size_t line, size_t k, uint32_t words[SIDE][SIDE])
{
    size_t lines = line < l->size ? l->size - line : 0, ks = k < l->K ? l->K - k : 0;
    if (lines > SIDE) lines = SIDE;
    if (ks > PANEL) ks = PANEL;
    if (lines < SIDE || ks < PANEL) memset(words, 0, SIDE * sizeof *words);
    const bf16 *x = l->x;
    for (size_t i = 0; i < lines; i++)
        memcpy(words[i], x + (line + i) * l->stride + k, ks * sizeof *x);
}

/* 32 lines that run across: words[half][k / 2][line]. */
static void read_pairs_across(const struct lines *l, size_t line, size_t k,
                              uint32_t words[2][SIDE][SIDE])
{
    size_t lines = line < l->size ? l->size - line : 0;
    const bf16 *x = l->x;
    for (size_t pair = 0; pair < SIDE; pair++) {
        size_t at = k + 2 * pair;
        bf16 rows[2][PANEL] = {0};
        const bf16 *low = rows[0], *high = rows[1];
        if (lines >= PANEL && at + 1 < l->K) {
            low = x + at * l->stride + line, high = low + l->stride;
        } else {
            size_t bytes = (lines < PANEL ? lines : PANEL) * sizeof *x;
            if (at < l->K) memcpy(rows[0], x + at * l->stride + line, bytes);
            if (at + 1 < l->K) memcpy(rows[1], x + (at + 1) * l->stride + line, bytes);
        }
        for (size_t half = 0; half < 2; half++)
            for (size_t i = 0; i < SIDE; i++)
                words[half][pair][i] = low[half * SIDE + i] | (uint32_t)high[half * SIDE + i] << 16;
    }
}

/* Rows of A, or columns of B, that run the other way than pairs want them are turned. */
static void pack_pairs(const struct lines *l, bool right, size_t line, size_t k,
                       uint32_t words[2][SIDE][SIDE])
{
    if (l->across)
        read_pairs_across(l, line, k, words);
    else
        for (size_t half = 0; half < 2; half++) read_pairs(l, line + half * SIDE, k, words[half]);
    if (l->across != right)
        for (size_t half = 0; half < 2; half++) turn_words(words[half]);
}

/* 16 lines from `line`, 16 k from `k`, widened: words[line][k]; across: words[k][line]. */
static void read_floats(const struct lines *l, size_t line, size_t k, uint32_t words[SIDE][SIDE])
{
    size_t first = l->across ? k : line, rows = l->across ? l->K : l->size;
    size_t begin = l->across ? line : k, columns = l->across ? l->size : l->K;
    rows = first < rows ? rows - first : 0, columns = begin < columns ? columns - begin : 0;
    if (columns > SIDE) columns = SIDE;
    if (rows < SIDE || columns < SIDE) memset(words, 0, SIDE * sizeof *words);
    for (size_t i = 0; i < SIDE && i < rows; i++) {
        size_t at = (first + i) * l->stride + begin;
        if (l->dtype == F32) {
            memcpy(words[i], (const float *)l->x + at, columns * sizeof(float));
            continue;
        }
        const bf16 *from = (const bf16 *)l->x + at;
        for (size_t j = 0; j < columns; j++) words[i][j] = (uint32_t)from[j] << 16;
    }
}

static void pack_floats(const struct lines *l, size_t line, size_t k, char *to)
{
    uint32_t words[SIDE][SIDE];
    for (size_t deep = 0; deep < PANEL; deep += SIDE)
        for (size_t half = 0; half < PANEL; half += SIDE) {
            read_floats(l, line + half, k + deep, words);
            if (!l->across) turn_words(words);
            for (size_t i = 0; i < SIDE; i++)
                memcpy(to + ((deep + i) * PANEL + half) * sizeof(float), words[i], sizeof words[i]);
        }
}

/* A step of a panel of a paneled matrix, as one of its own. */
static struct lines block_of(const struct lines *l, size_t panel, size_t step)
{
    size_t row = l->across ? step : panel, column = l->across ? panel : step;
    return (struct lines){.x = (const bf16 *)l->x + row * PANEL * l->stride + column * SUMS,
                          .dtype = BF16,
                          .size = PANEL,
                          .K = PANEL,
                          .stride = PANEL,
                          .across = l->across};
}

static void pack_step(const struct lines *l, struct panel_form form, size_t line, size_t k,
                      void *to)
{
    if (form.kind == FLOATS)
        pack_floats(l, line, k, to);
    else
        pack_pairs(l, form.right, line, k, to);
}

#if defined(__AVX512F__)
/* A panel of whole steps of rows, which lie as pairs want them: row by row, as memory likes it. */
static void copy_whole(const struct lines *l, const struct panel_form *form, size_t line,
                       size_t steps, char *to)
{
    for (size_t i = 0; i < PANEL; i++) {
        const bf16 *row = (const bf16 *)l->x + (line + i) * l->stride;
        for (size_t step = 0; step < steps; step++) {
            const bf16 *x = row + step * PANEL;
            __builtin_prefetch(x + 2 * l->stride, 0, 2);
            pairs_put(to + step * PANEL * PANEL * sizeof *x + i * 64, _mm512_loadu_si512(x),
                      form->stream);
        }
    }
}

/* Beside the packing of panel i of `count`, what comes a step or two later is asked for: in runs as
 * long as there are, as memory likes it. */
static void ask_ahead(const struct lines *l, size_t first, size_t count, size_t i, size_t step)
{
    const bf16 *x = l->x;
    if (l->paneled) {
        size_t n = i + 2;
        x = l->across ? block_of(l, first + n % count, step + n / count).x
                      : block_of(l, first + i, step + 2).x;
        for (size_t row = 0; row < PANEL; row++) __builtin_prefetch(x + row * PANEL, 0, 2);
    } else if (l->across) {
        x += (step + 1) * PANEL * l->stride + first * PANEL;
        for (size_t row = PANEL * i / count; row < PANEL * (i + 1) / count; row++)
            for (size_t k = 0; k < count; k++)
                __builtin_prefetch(x + row * l->stride + k * PANEL, 0, 2);
    } else {
        x += (first + i) * PANEL * l->stride + (step + 2) * PANEL;
        for (size_t row = 0; row < PANEL; row++) __builtin_prefetch(x + row * l->stride, 0, 2);
    }
}

/* A whole step of pairs that are to be joined or turned. */
static void pack_whole(const struct lines *l, const struct panel_form *form, size_t line, size_t k,
                       char *to)
{
    const bf16 *x = (const bf16 *)l->x + (l->across ? k * l->stride + line : line * l->stride + k);
    char words[2][SIDE][64] __attribute__((aligned(64)));
    size_t row = l->stride * sizeof *x;
    for (size_t pair = 0; pair < SIDE && l->across; pair++) {
        __m512i lines[2];
        pairs_join(x + 2 * pair * l->stride, x + (2 * pair + 1) * l->stride, lines);
        for (size_t half = 0; half < 2; half++)
            if (form->right)
                pairs_put(to + half * 1024 + pair * 64, lines[half], form->stream);
            else
                _mm512_store_si512(words[half][pair], lines[half]);
    }
    if (l->across == form->right) return;
    for (size_t n = 0; n < 8; n++)
        if (l->across)
            pairs_turn(words[n / 4][0], 64, n % 4, to + n / 4 * 1024, form->stream);
        else
            pairs_turn((const char *)x + n / 4 * SIDE * row, row, n % 4, to + n / 4 * 1024,
                       form->stream);
}
#endif

void KERNEL(panel_pack)(const struct lines *l, struct panel_form form, size_t first, size_t count,
                        void *to)
{
    size_t steps = panels_of(l->K), bytes = panel_step_bytes(form.kind);
    size_t panel = (form.steps ? form.steps : steps) * bytes;
#if defined(__AVX512F__)
    bool whole = form.kind == PAIRS && (first + count) * PANEL <= l->size && l->K % PANEL == 0;
    if (whole && !l->across && !form.right && !l->paneled) {
        for (size_t i = 0; i < count; i++)
            copy_whole(l, &form, (first + i) * PANEL, steps, (char *)to + i * panel);
        return;
    }
#endif
    float near[SUMS] __attribute__((aligned(64))); /* a step of either kind */
    for (size_t n = 0; n < steps * count; n++) {
        /* as memory lies: panels inside where they share rows, else steps */
        size_t step = l->across ? n / count : n % steps, i = l->across ? n % count : n / steps;
        char *here = (char *)to + i * panel + step * bytes;
        struct lines from = l->paneled ? block_of(l, first + i, step) : *l;
        size_t line = l->paneled ? 0 : (first + i) * PANEL, k = l->paneled ? 0 : step * PANEL;
#if defined(__AVX512F__)
        if (form.kind == PAIRS && line + PANEL <= from.size && k + PANEL <= from.K &&
            l->across + form.right) {
            ask_ahead(l, first, count, i, step);
            pack_whole(&from, &form, line, k, here);
            continue;
        }
#endif
        pack_step(&from, form, line, k, form.stream ? near : (void *)here);
        for (size_t at = 0; form.stream && at < bytes; at += 64)
            vector_stream_line(here + at, (const char *)near + at);
    }
}

bool KERNEL(panels_keep)(bool is_private, enum dtype dtype, int rows, int columns)
{
#if defined(TILES)
    return is_private && dtype == BF16 && rows % PANEL == 0 && columns % PANEL == 0;
#else
    (void)is_private, (void)dtype, (void)rows, (void)columns;
    return false;
#endif
}

void KERNEL(panel_turn)(float *sums)
{
    const size_t row = PANEL * sizeof *sums, side = SIDE * sizeof *sums;
    float *right = sums + SIDE, *lower = sums + SIDE * PANEL, kept[SIDE * SIDE];
    turn(sums, row, sums, row);
    turn(lower + SIDE, row, lower + SIDE, row);
    turn(right, row, kept, side);
    turn(lower, row, right, row);
    for (size_t i = 0; i < SIDE; i++) memcpy(lower + i * PANEL, kept + i * SIDE, side);
}
