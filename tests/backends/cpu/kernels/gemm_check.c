// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/gemm_check.h"

#include "backends/cpu/element.h"
#include "ops/rig.h"

#define X(name)                                                                                    \
    extern const struct isa name##_isa;                                                            \
    gemm_kernel name##_gemm;
CPU_ISAS(X)
#undef X

/* Element (i, k) of a row-major matrix or of its transpose. */
static double element(const bf16 *x, bool transposed, int rows, int K, int i, int k)
{
    return (double)bf16_to_f32(
        x[transposed ? (size_t)k * (size_t)rows + (size_t)i : (size_t)i * (size_t)K + (size_t)k]);
}

/* A copy that is aligned to a cache line. */
static void *cache_aligned_copy(const void *x, size_t bytes)
{
    return memcpy(aligned_alloc(64, (bytes + 63) / 64 * 64), x, bytes);
}

/* Checks a sample of C against f64 sums: all of it would take too long. */
void gemm_check(gemm_kernel *multiply, struct gemm_shape s)
{
    size_t a_n = (size_t)s.M * (size_t)s.K, b_n = (size_t)s.N * (size_t)s.K;
    size_t c_n = (size_t)s.M * (size_t)s.N, c_bytes = c_n * dtype_bytes(s.out);
    bf16 *a = rig_random(1, a_n, BF16), *b = rig_random(2, b_n, BF16);
    void *old = rig_random(3, c_n, s.out), *c = cache_aligned_copy(old, c_bytes), *c2;
    struct gemm_buffers io = {a, b, c, memcpy(c, old, c_bytes)};
    RIG_RUN(multiply(&s, gemm_blocking_at(0), &io, rig_queue()));
    size_t scratch = rig_queue()->scratch.size;
    for (size_t n = 0; n < c_n; n += c_n < 5000 ? 1 : 997) {
        int i = (int)(n / (size_t)s.N), j = (int)(n % (size_t)s.N);
        double want = 0;
        for (int k = 0; k < s.K; k++)
            want += element(a, s.transpose_a, s.M, s.K, i, k) *
                    element(b, !s.transpose_b, s.N, s.K, j, k);
        if (s.scaled) want *= (double)s.scale;
        if (s.accumulate) want += (double)element_get(old, n, s.out);
        CHECK_NEAR((double)element_get(c, n, s.out), want, s.out == F32 ? 2e-3 : 5e-3);
    }
    c2 = cache_aligned_copy(old, c_bytes);
    io.d = old,
    io.c = memset(c2, 0xFF, c_bytes); /* the bits do not depend on whether C overwrites D */
    rig_queue()->num_threads = 1;
    RIG_RUN(multiply(&s, gemm_blocking_at(0), &io, rig_queue()));
    rig_queue()->num_threads = 2;
    CHECK(!memcmp(c, c2, c_bytes));             /* or on threads */
    for (int i = 1; gemm_blocking_at(i); i++) { /* or on the blocking, nor does the memory */
        memset(c2, 0xFF, c_bytes);
        RIG_RUN(multiply(&s, gemm_blocking_at(i), &io, rig_queue()));
        CHECK(!memcmp(c, c2, c_bytes));
        CHECK(rig_queue()->scratch.size == scratch);
    }
    free(a), free(b), free(c), free(old), free(c2);
}

/* A copy of a matrix in the panel layout. */
static void *paneled(const void *x, int rows, int columns, size_t bytes)
{
    char *y = aligned_alloc(64, (size_t)rows * (size_t)columns * bytes), *to = y;
    for (int panel = 0; panel < rows; panel += 32)
        for (int step = 0; step < columns; step += 32)
            for (int row = panel; row < panel + 32; row++, to += 32 * bytes) {
                size_t element = (size_t)row * (size_t)columns + (size_t)step;
                memcpy(to, (const char *)x + element * bytes, 32 * bytes);
            }
    return y;
}

void gemm_check_paneled(gemm_kernel *multiply, struct gemm_shape s)
{
    size_t c_n = (size_t)s.M * (size_t)s.N, bytes = dtype_bytes(s.out);
    bf16 *a = rig_random(1, (size_t)s.M * (size_t)s.K, BF16);
    bf16 *b = rig_random(2, (size_t)s.N * (size_t)s.K, BF16);
    bf16 *a2 = paneled(a, s.transpose_a ? s.K : s.M, s.transpose_a ? s.M : s.K, sizeof *a);
    bf16 *b2 = paneled(b, s.transpose_b ? s.N : s.K, s.transpose_b ? s.K : s.N, sizeof *b);
    void *old = rig_random(3, c_n, s.out), *old2 = paneled(old, s.M, s.N, bytes);
    void *want = cache_aligned_copy(old, c_n * bytes), *c = cache_aligned_copy(old, c_n * bytes);
    struct gemm_buffers io = {a, b, want, want};
    RIG_RUN(multiply(&s, gemm_blocking_at(0), &io, rig_queue()));
    void *want2 = paneled(want, s.M, s.N, bytes);
    for (int how = 1; how < 8; how++) {
        s.a_paneled = how & 1, s.b_paneled = how & 2, s.c_paneled = how & 4;
        io = (struct gemm_buffers){s.a_paneled ? a2 : a, s.b_paneled ? b2 : b,
                                   s.c_paneled ? old2 : old, memset(c, 0xFF, c_n * bytes)};
        RIG_RUN(multiply(&s, gemm_blocking_at(0), &io, rig_queue()));
        CHECK(!memcmp(c, s.c_paneled ? want2 : want, c_n * bytes));
    }
    free(a), free(b), free(a2), free(b2), free(old), free(old2), free(want), free(want2), free(c);
}

void gemm_check_each_isa(struct gemm_shape s)
{
#define X(name)                                                                                    \
    if (isa_is_supported(&name##_isa)) gemm_check(name##_gemm, s);
    CPU_ISAS(X)
#undef X
    gemm_check(amx_emulated_gemm, s);
}
