// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "base/rng.h"
#include "test.h"

/* On AMX the caller of panel_multiply configures the tiles. */
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
#include "backends/cpu/kernels/tiles.h"
static void open_amx_tiles(void) { tiles_open(); }
static void close_amx_tiles(void) { tiles_close(); }
#pragma GCC pop_options
#else
static void open_amx_tiles(void) {}
static void close_amx_tiles(void) {}
#endif

typedef __typeof__(KERNEL(panel_multiply)) panel_multiply;
typedef __typeof__(KERNEL(panel_kind)) panel_kind_of;
#define X(name)                                                                                    \
    extern const struct isa name##_isa;                                                            \
    panel_multiply name##_panel_multiply;                                                          \
    panel_kind_of name##_panel_kind;
CPU_ISAS(X)
#undef X

enum { STEPS = 5, DEPTH = STEPS * PANEL };

static bf16 value(uint64_t matrix, size_t i, size_t k)
{
    return bf16_from_f32((float)rng_normal(7, RNG_TEST, matrix, i * DEPTH + k));
}

/* Offset of vector i, element k of a panel, from the layout in panel.h. */
static size_t panel_index(enum panel_kind kind, bool right, size_t i, size_t k)
{
    size_t step = k / PANEL * PANEL * PANEL, at = k % PANEL, half = i / 16 * 512;
    if (kind == PANEL_F32) return step + at * PANEL + i;
    return step + half + (right ? at / 2 * 32 + i % 16 * 2 + at % 2 : i % 16 * PANEL + at);
}

static void fill(enum panel_kind kind, bool right, void *panel)
{
    for (size_t i = 0; i < PANEL; i++)
        for (size_t k = 0; k < DEPTH; k++) {
            size_t at = panel_index(kind, right, i, k);
            bf16 x = value(right, i, k);
            if (kind == PANEL_BF16)
                ((bf16 *)panel)[at] = x;
            else
                ((float *)panel)[at] = bf16_to_f32(x);
        }
}

static void check(panel_multiply *multiply, enum panel_kind kind, bool accumulate)
{
    size_t bytes = STEPS * panel_step_bytes(kind);
    void *left = heap(bytes), *right = heap(bytes);
    float *sums = heap(PANEL * PANEL * sizeof *sums);
    fill(kind, false, left), fill(kind, true, right);
    for (size_t i = 0; i < PANEL * PANEL; i++) sums[i] = (float)i;
    multiply(kind, STEPS, left_panel_packed(kind, left), right, sums, accumulate);
    for (size_t i = 0; i < PANEL; i++)
        for (size_t j = 0; j < PANEL; j++) {
            double want = accumulate ? (double)(i * PANEL + j) : 0;
            for (size_t k = 0; k < DEPTH; k++)
                want += (double)bf16_to_f32(value(0, i, k)) * (double)bf16_to_f32(value(1, j, k));
            CHECK_NEAR((double)sums[i * PANEL + j], want, 1e-3);
        }
    free(left), free(right), free(sums);
}

TEST(micro_kernels_match_three_loops_for_every_isa_and_kind)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
#define X(name)                                                                                    \
    if (isa_is_supported(&name##_isa)) {                                                           \
        check(name##_panel_multiply, PANEL_F32, accumulate);                                       \
        bool tiles = !strcmp(#name, "amx");                                                        \
        if (tiles) open_amx_tiles();                                                               \
        if (name##_panel_kind() == PANEL_BF16)                                                     \
            check(name##_panel_multiply, PANEL_BF16, accumulate);                                  \
        if (tiles) close_amx_tiles();                                                              \
    }
        CPU_ISAS(X)
#undef X
    }
}
