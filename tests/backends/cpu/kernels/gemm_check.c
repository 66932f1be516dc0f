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
static double element(const void *x, enum dtype dtype, bool transposed, size_t rows, size_t K,
                      size_t i, size_t k)
{
    return (double)element_get(x, transposed ? k * rows + i : i * K + k, dtype);
}

/* A copy that is aligned to a cache line. */
static void *cache_aligned_copy(const void *x, size_t bytes)
{
    return memcpy(aligned_alloc(64, (bytes + 63) / 64 * 64), x, bytes);
}

/* The same bits whether C overwrites D or not, with any number of threads and any blocking; no
 * blocking needs more memory. */
static void check_bits(gemm_kernel *multiply, const struct gemm_shape *s, struct gemm_buffers io,
                       const void *want)
{
    static const int threads[] = {1, 3, 16};
    const size_t bytes = (size_t)s->M * (size_t)s->N * dtype_bytes(s->out);
    void *c = io.c = cache_aligned_copy(want, bytes);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        rig_queue()->num_threads = threads[i];
        memset(c, 0xFF, bytes);
        RIG_RUN(multiply(s, gemm_blocking_at(0), &io, rig_queue()));
        CHECK(!memcmp(c, want, bytes));
    }
    rig_queue()->num_threads = 2;
    size_t scratch = 0;
    for (int i = 0; gemm_blocking_at(i); i++) {
        memset(c, 0xFF, bytes);
        RIG_RUN(multiply(s, gemm_blocking_at(i), &io, rig_queue()));
        CHECK(!memcmp(c, want, bytes));
        if (!i) scratch = rig_queue()->scratch.size;
        CHECK(rig_queue()->scratch.size == scratch);
    }
    free(c);
}

/* Checks a sample of C against f64 sums: all of it would take too long. */
void gemm_check(gemm_kernel *multiply, struct gemm_shape s)
{
    const size_t M = (size_t)s.M, N = (size_t)s.N, K = (size_t)s.K, c_n = M * N;
    void *a = rig_random(1, M * K, s.dtype), *b = rig_random(2, N * K, s.dtype);
    void *old = rig_random(3, c_n, s.out), *c = cache_aligned_copy(old, c_n * dtype_bytes(s.out));
    struct gemm_buffers io = {a, b, c, c};
    RIG_RUN(multiply(&s, gemm_blocking_at(0), &io, rig_queue()));
    for (size_t n = 0; n < c_n; n += c_n < 5000 ? 1 : 997) {
        double want = 0;
        for (size_t k = 0; k < K; k++)
            want += element(a, s.dtype, s.transpose_a, M, K, n / N, k) *
                    element(b, s.dtype, !s.transpose_b, N, K, n % N, k);
        if (s.scaled) want *= (double)s.scale;
        if (s.accumulate) want += (double)element_get(old, n, s.out);
        CHECK_NEAR((double)element_get(c, n, s.out), want, s.out == F32 ? 2e-3 : 5e-3);
    }
    io.d = old;
    check_bits(multiply, &s, io, c);
    free(a), free(b), free(c), free(old);
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

static void check_paneled(gemm_kernel *multiply, struct gemm_shape s)
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

void gemm_check_paneled(struct gemm_shape s)
{
#define X(name)                                                                                    \
    if (!strcmp(#name, "amx") && isa_is_supported(&name##_isa)) check_paneled(name##_gemm, s);
    CPU_ISAS(X)
#undef X
    check_paneled(amx_emulated_gemm, s);
}

void gemm_check_each_isa(struct gemm_shape s)
{
#define X(name)                                                                                    \
    if (isa_is_supported(&name##_isa)) gemm_check(name##_gemm, s);
    CPU_ISAS(X)
#undef X
    gemm_check(amx_emulated_gemm, s);
}
