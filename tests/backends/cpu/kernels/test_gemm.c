// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/cpu/element.h"
#include "backends/cpu/kernels/gemm.h"

typedef __typeof__(KERNEL(gemm)) gemm;
#define X(set)                                                                                     \
    extern const struct cpu_set set##_set;                                                         \
    gemm set##_gemm;
CPU_SETS(X)
X(amx_emulated)
#undef X

/* Element (i, k) of a row-major matrix or of its transpose. */
static double at(const bf16 *x, bool across, int lines, int K, int i, int k)
{
    return (double)bf16_to_f32(
        x[across ? (size_t)k * (size_t)lines + (size_t)i : (size_t)i * (size_t)K + (size_t)k]);
}

/* A copy that begins on a line of the cache. */
static void *on_line(const void *x, size_t bytes)
{
    return memcpy(aligned_alloc(64, (bytes + 63) / 64 * 64), x, bytes);
}

/* Some elements of C against sums in f64: all of them would take three loops over all. */
static void check(gemm *multiply, struct product_shape s)
{
    size_t a_n = (size_t)s.M * (size_t)s.K, b_n = (size_t)s.N * (size_t)s.K;
    size_t c_n = (size_t)s.M * (size_t)s.N, c_bytes = c_n * dtype_bytes(s.out);
    bf16 *a = rig_random(1, a_n, BF16), *b = rig_random(2, b_n, BF16);
    void *old = rig_random(3, c_n, s.out), *c = on_line(old, c_bytes), *again;
    RIG_RUN(multiply(&s, way_at(0), a, b, memcpy(c, old, c_bytes), rig_queue()));
    size_t scratch = rig_queue()->scratch.size;
    for (size_t n = 0; n < c_n; n += c_n < 5000 ? 1 : 997) {
        int i = (int)(n / (size_t)s.N), j = (int)(n % (size_t)s.N);
        double want = 0;
        for (int k = 0; k < s.K; k++)
            want += at(a, s.transpose_a, s.M, s.K, i, k) * at(b, !s.transpose_b, s.N, s.K, j, k);
        if (s.scaled) want *= (double)s.scale;
        if (s.accumulate) want += (double)element_get(old, n, s.out);
        CHECK_NEAR((double)element_get(c, n, s.out), want, s.out == F32 ? 2e-3 : 5e-3);
    }
    again = on_line(old, c_bytes);
    rig_queue()->num_threads = 1;
    RIG_RUN(multiply(&s, way_at(0), a, b, memcpy(again, old, c_bytes), rig_queue()));
    rig_queue()->num_threads = 2;
    CHECK(!memcmp(c, again, c_bytes)); /* the bits do not depend on threads */
    for (int i = 1; way_at(i); i++) {  /* nor on the way, nor does the memory */
        memset(again, 0xFF, c_bytes);
        RIG_RUN(multiply(&s, way_at(i), a, b, memcpy(again, old, c_bytes), rig_queue()));
        CHECK(!memcmp(c, again, c_bytes));
        CHECK(rig_queue()->scratch.size == scratch);
    }
    free(a), free(b), free(c), free(old), free(again);
}

static void check_each_set(struct product_shape s)
{
#define X(set)                                                                                     \
    if (cpu_set_runs(&set##_set)) check(set##_gemm, s);
    CPU_SETS(X)
#undef X
    check(amx_emulated_gemm, s);
}

TEST(products_of_every_orientation_are_their_sums_in_any_number_of_threads)
{
    for (int how = 0; how < 16; how++) {
        struct product_shape s = {37, 70, 45, BF16, F32, how & 1, how & 2, how & 4, how & 8, 0.37f};
        check_each_set(s);
    }
}

TEST(products_of_whole_panels_are_put_line_by_line)
{
    for (int how = 0; how < 16; how++)
        for (int size = 0; size < 2; size++)
            check_each_set((struct product_shape){
                size ? 64 : 128, size ? 96 : 32, how & 1 ? 1376 : 96, BF16, how & 8 ? F32 : BF16,
                how & 8, !(how & 8) && how & 2, how & 4, false, 0});
}

TEST(products_with_long_sums_and_many_blocks_are_whole)
{
    check_each_set((struct product_shape){40, 33, 1900, BF16, F32, true, false, true, false, 0});
    check_each_set(
        (struct product_shape){600, 290, 70, BF16, BF16, false, true, false, true, 0.37f});
}

TEST(products_that_each_way_cuts_otherwise_have_the_same_bits)
{
    check_each_set((struct product_shape){529, 301, 1103, BF16, F32, true, false, true, false, 0});
    check_each_set(
        (struct product_shape){301, 529, 390, BF16, BF16, false, true, true, true, 0.3f});
}

TEST(sums_too_long_for_one_slice_go_on_in_the_next)
{
    for (int how = 0; how < 2; how++) {
        check_each_set(
            (struct product_shape){34, 3, 70011, BF16, F32, true, false, how, !how, 0.37f});
        check_each_set(
            (struct product_shape){34, 3, 70011, BF16, BF16, false, false, how, how, 0.37f});
    }
}
