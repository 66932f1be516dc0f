// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "base/rng.h"
#include "test.h"

/* On AMX a panel of pairs meets another in tiles that the caller opened. */
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
#include "backends/cpu/kernels/tiles.h"
static void amx_open(void) { tiles_open(); }
static void amx_close(void) { tiles_close(); }
#pragma GCC pop_options
#else
static void amx_open(void) {}
static void amx_close(void) {}
#endif

typedef __typeof__(KERNEL(panel_multiply)) panel_multiply;
typedef __typeof__(KERNEL(panel_kind)) panel_kind_of;
#define X(isa)                                                                                     \
    extern const struct cpu_set isa##_set;                                                         \
    panel_multiply isa##_panel_multiply;                                                           \
    panel_kind_of isa##_panel_kind;
CPU_ISAS(X)
#undef X

enum { STEPS = 3, DEEP = STEPS * PANEL };

static bf16 value(uint64_t matrix, size_t i, size_t k)
{
    return bf16_from_f32((float)rng_normal(7, RNG_TEST, matrix, i * DEEP + k));
}

/* Line i, element k of a panel, by the layout that panel.h states. */
static size_t place(enum panel_kind kind, bool right, size_t i, size_t k)
{
    size_t step = k / PANEL * PANEL * PANEL, at = k % PANEL, half = i / 16 * 512;
    if (kind == PANEL_F32) return step + at * PANEL + i;
    return step + half + (right ? at / 2 * 32 + i % 16 * 2 + at % 2 : i % 16 * PANEL + at);
}

static void fill(enum panel_kind kind, bool right, void *panel)
{
    for (size_t i = 0; i < PANEL; i++)
        for (size_t k = 0; k < DEEP; k++) {
            size_t at = place(kind, right, i, k);
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
            for (size_t k = 0; k < DEEP; k++)
                want += (double)bf16_to_f32(value(0, i, k)) * (double)bf16_to_f32(value(1, j, k));
            CHECK_NEAR((double)sums[i * PANEL + j], want, 1e-3);
        }
    free(left), free(right), free(sums);
}

TEST(panels_multiply_to_what_three_loops_give_in_every_set_and_kind)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
#define X(isa)                                                                                     \
    if (cpu_set_runs(&isa##_set)) {                                                                \
        check(isa##_panel_multiply, PANEL_F32, accumulate);                                        \
        bool tiles = !strcmp(#isa, "amx");                                                         \
        if (tiles) amx_open();                                                                     \
        if (isa##_panel_kind() == PANEL_BF16) check(isa##_panel_multiply, PANEL_BF16, accumulate); \
        if (tiles) amx_close();                                                                    \
    }
        CPU_ISAS(X)
#undef X
    }
}
