// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"
#include "test.h"

enum { ROWS_LEFT, ROWS_RIGHT, ROWS_SPLIT };

typedef __typeof__(KERNEL(attention_pack_left)) pack;
#define X(name)                                                                                    \
    extern const struct isa name##_isa;                                                            \
    pack name##_attention_pack_left, name##_attention_pack_right, name##_attention_pack_split;
CPU_ISAS(X)
#undef X

/* Column k of row i, read back from each panel format. */
static bf16 element_of(int format, const char *panel, size_t step, size_t i, size_t k)
{
    const bf16 *at = (const bf16 *)(panel + k / PANEL * step);
    size_t column = k % PANEL;
    if (format == ROWS_LEFT) return at[i * PANEL + column];
    if (format == ROWS_RIGHT) return at[i / 16 * 512 + column / 2 * 32 + i % 16 * 2 + column % 2];
    return at[column / 16 * 512 + i % 16 * 32 + column % 16 * 2 + i / 16];
}

/* paneled: the rows are in the panel layout, 32 columns at a time. */
static void check(pack *of, int format, size_t count, size_t K, bool paneled)
{
    size_t head_panels = panel_count(K), step = 2048 + 64;
    size_t stride = paneled ? PANEL : K + 3, panel_stride = paneled ? MICRO_TILE : PANEL;
    size_t last = (count - 1) * stride + (K - 1) / PANEL * panel_stride + (K - 1) % PANEL;
    bf16 *x = heap((last + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < K; k++)
            x[i * stride + k / PANEL * panel_stride + k % PANEL] = (bf16)(0x3000 + i * 131 + k);
    char *panel = aligned_alloc(64, head_panels * step);
    memset(panel, 0x55, head_panels * step);
    struct attention_rows r = {x, stride, panel_stride, count, K, head_panels};
    of(&r, panel, step);
    for (size_t i = 0; i < PANEL; i++)
        for (size_t k = 0; k < head_panels * PANEL; k++) {
            bf16 want = i < count && k < K ? (bf16)(0x3000 + i * 131 + k) : 0;
            CHECK(element_of(format, panel, step, i, k) == want);
        }
    free(panel), free(x);
}

TEST(attention_panels_hold_their_rows_and_zero_padding)
{
    static const size_t sizes[][2] = {{1, 1}, {32, 32}, {31, 33}, {17, 64}, {32, 96}, {5, 160}};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        size_t count = sizes[i / 2][0], K = sizes[i / 2][1];
#define X(name)                                                                                    \
    if (isa_is_supported(&name##_isa)) {                                                           \
        check(name##_attention_pack_left, ROWS_LEFT, count, K, i % 2);                             \
        check(name##_attention_pack_right, ROWS_RIGHT, count, K, i % 2);                           \
        check(name##_attention_pack_split, ROWS_SPLIT, count, K, i % 2);                           \
    }
        CPU_ISAS(X)
#undef X
    }
}
