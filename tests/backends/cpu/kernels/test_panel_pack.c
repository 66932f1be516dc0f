// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/panel.h"
#include "test.h"

typedef __typeof__(KERNEL(panel_pack)) panel_pack;
#define X(name)                                                                                    \
    extern const struct isa name##_isa;                                                            \
    panel_pack name##_panel_pack;
CPU_ISAS(X)
#undef X

/* Element k of vector i of the panel as a bf16, read back from the layout in panel.h. */
static bf16 element_of(enum panel_kind kind, bool right, const void *panel, size_t i, size_t k)
{
    size_t step = k / PANEL * PANEL * PANEL, at = k % PANEL, half = i / 16 * 512;
    if (kind == PANEL_F32) return bf16_from_f32(((const float *)panel)[step + at * PANEL + i]);
    return (
        (const bf16 *)
            panel)[step + half + (right ? at / 2 * 32 + i % 16 * 2 + at % 2 : i % 16 * PANEL + at)];
}

/* Offset of element (row, column) of a matrix in the panel layout, or stored by rows. */
static size_t matrix_offset(bool paneled, size_t row, size_t column, size_t columns)
{
    size_t before = row / 32 * 32 * columns + column / 32 * 32 * 32;
    return paneled ? before + row % 32 * 32 + column % 32 : row * columns + column;
}

/* Packs unique values; the operand of mn_count vectors of K ends at the end of its allocation. */
static void check(panel_pack *pack, size_t size, size_t K, int how)
{
    enum panel_kind kind = how & 1 ? PANEL_BF16 : PANEL_F32;
    bool right = how & 2, mn_major = how & 4, paneled = how & 16;
    if (paneled && (kind != PANEL_BF16 || size % PANEL || K % PANEL)) return;
    struct panel_format format = {.kind = kind, .right = right, .stream = how & 8};
    size_t bytes = panel_count(K) * panel_step_bytes(kind);
    bf16 *x = heap(size * K * sizeof *x);
    for (size_t i = 0; i < size; i++)
        for (size_t k = 0; k < K; k++)
            x[mn_major ? matrix_offset(paneled, k, i, size) : matrix_offset(paneled, i, k, K)] =
                (bf16)(0x3000 + i * 131 + k);
    char *panels = aligned_alloc(64, panel_count(size) * bytes);
    memset(panels, 0x55, panel_count(size) * bytes);
    struct operand l = {x, BF16, size, K, mn_major ? size : K, mn_major, paneled};
    pack(&l, format, 0, 1, panels);
    pack(&l, format, 1, panel_count(size) - 1, panels + bytes);
    for (size_t p = 0; p < panel_count(size); p++) {
        const void *panel = panels + p * bytes;
        for (size_t i = 0; i < PANEL; i++)
            for (size_t k = 0; k < panel_count(K) * PANEL; k++) {
                size_t line = p * PANEL + i;
                bf16 want = line < size && k < K ? (bf16)(0x3000 + line * 131 + k) : 0;
                CHECK(element_of(kind, right, panel, i, k) == want);
            }
    }
    format.steps = panel_count(K) + 1; /* panels may be farther apart than they are long */
    char *apart = aligned_alloc(64, panel_count(size) * (bytes + panel_step_bytes(kind)));
    pack(&l, format, 0, panel_count(size), apart);
    for (size_t p = 0; p < panel_count(size); p++)
        CHECK(!memcmp(apart + p * (bytes + panel_step_bytes(kind)), panels + p * bytes, bytes));
    free(panels), free(apart), free(x);
}

TEST(packed_panels_follow_the_layout_and_are_zero_padded)
{
    static const size_t sizes[][2] = {{1, 1},   {16, 32}, {32, 32}, {33, 65},
                                      {70, 31}, {64, 96}, {96, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 32; how++) {
#define X(name)                                                                                    \
    if (isa_is_supported(&name##_isa)) check(name##_panel_pack, sizes[i][0], sizes[i][1], how);
            CPU_ISAS(X)
#undef X
        }
}
