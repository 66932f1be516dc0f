// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_pack.h"
#include "test.h"

enum { ROWS_LEFT, ROWS_RIGHT, ROWS_SPLIT };

typedef __typeof__(KERNEL(attention_pack_left)) pack;
#define X(isa)                                                                                     \
    extern const struct cpu_set isa##_set;                                                         \
    pack isa##_attention_pack_left, isa##_attention_pack_right, isa##_attention_pack_split;
CPU_ISAS(X)
#undef X

/* Column k of row i, read back from where each form has it. */
static bf16 element_of(int form, const char *panel, size_t step, size_t i, size_t k)
{
    const bf16 *at = (const bf16 *)(panel + k / PANEL * step);
    size_t column = k % PANEL;
    if (form == ROWS_LEFT) return at[i * PANEL + column];
    if (form == ROWS_RIGHT) return at[i / 16 * 512 + column / 2 * 32 + i % 16 * 2 + column % 2];
    return at[column / 16 * 512 + i % 16 * 32 + column % 16 * 2 + i / 16];
}

/* kept: 32 columns of all rows lie behind the former ones'. */
static void check(pack *of, int form, size_t count, size_t K, bool kept)
{
    size_t head_panels = panel_count(K), step = 2048 + 64;
    size_t stride = kept ? PANEL : K + 3, width = kept ? MICRO_TILE : PANEL;
    size_t last = (count - 1) * stride + (K - 1) / PANEL * width + (K - 1) % PANEL;
    bf16 *x = heap((last + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < K; k++)
            x[i * stride + k / PANEL * width + k % PANEL] = (bf16)(0x3000 + i * 131 + k);
    char *panel = aligned_alloc(64, head_panels * step);
    memset(panel, 0x55, head_panels * step);
    struct attention_rows r = {x, stride, width, count, K, head_panels};
    of(&r, panel, step);
    for (size_t i = 0; i < PANEL; i++)
        for (size_t k = 0; k < head_panels * PANEL; k++) {
            bf16 want = i < count && k < K ? (bf16)(0x3000 + i * 131 + k) : 0;
            CHECK(element_of(form, panel, step, i, k) == want);
        }
    free(panel), free(x);
}

TEST(panels_of_attention_hold_rows_and_zeros_past_their_end)
{
    static const size_t sizes[][2] = {{1, 1}, {32, 32}, {31, 33}, {17, 64}, {32, 96}, {5, 160}};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        size_t count = sizes[i / 2][0], K = sizes[i / 2][1];
#define X(isa)                                                                                     \
    if (cpu_set_runs(&isa##_set)) {                                                                \
        check(isa##_attention_pack_left, ROWS_LEFT, count, K, i % 2);                              \
        check(isa##_attention_pack_right, ROWS_RIGHT, count, K, i % 2);                            \
        check(isa##_attention_pack_split, ROWS_SPLIT, count, K, i % 2);                            \
    }
        CPU_ISAS(X)
#undef X
    }
}
