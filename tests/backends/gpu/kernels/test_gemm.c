// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/column_major.h"
#include "ops/float8.h"

/* Declared here for the other warp size. */
enum status gpu_emu64_gemm_tiled(const struct gemm *g, const struct gemm_io *io,
                                 struct queue *queue);

static enum dtype dtype_of(enum gemm_type x) { return x == GEMM_F32 ? F32 : BF16; }

static double number(const void *x, size_t at, enum dtype dtype)
{
    return dtype == F32 ? (double)((const float *)x)[at]
                        : (double)bf16_to_f32(((const bf16 *)x)[at]);
}

/* By the definition in gemm.h, row-major. */
static double element_of(const struct gemm *g, const struct gemm_io *io, int m, int n)
{
    double sum = 0;
    for (int k = 0; k < g->K; k++) {
        size_t a = g->transpose_a ? (size_t)k * (size_t)g->M + (size_t)m
                                  : (size_t)m * (size_t)g->K + (size_t)k;
        size_t b = g->transpose_b ? (size_t)n * (size_t)g->K + (size_t)k
                                  : (size_t)k * (size_t)g->N + (size_t)n;
        sum += number(io->a, a, dtype_of(g->a)) * number(io->b, b, dtype_of(g->b));
    }
    if (g->scaled) sum *= (double)(io->a_scale->inverse * io->b_scale->inverse);
    return sum;
}

static void check(const struct gemm *g, int warp_size)
{
    enum { LARGE = 1 << 16, STEP = 13 };
    size_t a = (size_t)g->M * (size_t)g->K, b = (size_t)g->K * (size_t)g->N;
    size_t c = (size_t)g->M * (size_t)g->N;
    struct float8_scale one = {4, 0.25f}, other = {0.5f, 2};
    void *old = rig_random(3, c, g->out), *got[2];
    struct gemm_io io = {.a = rig_random(1, a, dtype_of(g->a)),
                         .b = rig_random(2, b, dtype_of(g->b)),
                         .a_scale = &one,
                         .b_scale = &other};
    struct queue *queue;
    CHECK_STATUS(OK, warp_size == 32 ? gpu_emu32_open(&queue, 0) : gpu_emu64_open(&queue, 0));
    emulator_set_relaxed(true);
    for (int i = 0; i < 2; i++) {
        io.c = got[i] = rig_copy(old, c, g->out), io.d = i ? old : io.c;
        if (i) memset(io.c, 0xFF, c * dtype_bytes(g->out));
        CHECK_STATUS(
            OK, (warp_size == 32 ? gpu_emu32_gemm_tiled : gpu_emu64_gemm_tiled)(g, &io, queue));
    }
    bool is_large = c > LARGE;
    CHECK(!memcmp(got[0], got[1], c * dtype_bytes(g->out)));
    for (int m = 0; m < g->M; m++) /* of a large C, a sample */
        for (int n = is_large ? m % STEP : 0; n < g->N; n += is_large ? STEP : 1) {
            size_t at = (size_t)m * (size_t)g->N + (size_t)n;
            double expected = element_of(g, &io, m, n), actual = number(got[0], at, g->out);
            if (g->accumulate) expected += number(old, at, g->out);
            double tolerance = g->out == F32 ? 1e-4 : 0.02;
            if (!(fabs(actual - expected) <= tolerance * (1 + fabs(expected))))
                fail_msg("%d x %d x %d, warps of %d: C[%d][%d] is %g, expected %g", g->M, g->N,
                         g->K, warp_size, m, n, actual, expected);
        }
    emulator_set_relaxed(false);
    (warp_size == 32 ? gpu_emu32_close : gpu_emu64_close)(queue);
    free(old), free(got[0]), free(got[1]);
    free((void *)(uintptr_t)io.a), free((void *)(uintptr_t)io.b);
}

static void check_kinds(int M, int N, int K, int warp_size)
{
    static const struct {
        enum gemm_type type;
        enum dtype out;
    } kinds[] = {{GEMM_F32, F32}, {GEMM_BF16, BF16}, {GEMM_BF16, F32}};
    for (unsigned i = 0; i < 3 * 8; i++) {
        unsigned kind = i / 8;
        struct gemm g = {.M = M, .N = N, .K = K, .transpose_a = i & 1, .transpose_b = i & 2};
        g.accumulate = i & 4, g.a = g.b = kinds[kind].type, g.out = kinds[kind].out;
        g.scaled = g.a == GEMM_BF16 && g.out == F32;
        check(&g, warp_size);
    }
}

TEST(tiled_gemm_matches_the_definition_for_all_types_and_transpositions)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 70, 5}, {65, 16, 33}, {72, 80, 96}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int warp_size = 32; warp_size <= 64; warp_size += 32)
            check_kinds(sizes[i][0], sizes[i][1], sizes[i][2], warp_size);
}

TEST(large_gemm_tiles_match_the_definition_at_their_edges)
{
    for (int warp_size = 32; warp_size <= 64; warp_size += 32)
        for (unsigned i = 0; i < 4; i += warp_size == 32 ? 1 : 3) {
            struct gemm g = {.M = 7 * 128 + 3, .N = 7 * 128 + 8, .K = 37, .a = GEMM_BF16};
            g.b = g.a, g.out = BF16, g.transpose_a = i & 1, g.transpose_b = i & 2;
            check(&g, warp_size);
        }
}

TEST(unaligned_gemm_operands_give_the_same_bits)
{
    enum { M = 20, N = 24, K = 40 };
    bf16 *a = rig_random(1, M * K + 1, BF16), *b = rig_random(2, N * K + 1, BF16);
    float got[M * N], expected[M * N];
    struct queue *queue;
    struct gemm g = {M, N, K, .transpose_b = true, .a = GEMM_BF16, .b = GEMM_BF16, .out = F32};
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    emulator_set_relaxed(true);
    struct gemm_io io = {.a = a + 1, .b = b + 1, .c = got};
    CHECK_STATUS(OK, gpu_emu32_gemm_tiled(&g, &io, queue));
    memmove(a, a + 1, M * K * sizeof *a), memmove(b, b + 1, N * K * sizeof *b);
    io = (struct gemm_io){.a = a, .b = b, .c = expected};
    CHECK_STATUS(OK, gpu_emu32_gemm_tiled(&g, &io, queue));
    CHECK(!memcmp(got, expected, sizeof got));
    emulator_set_relaxed(false);
    gpu_emu32_close(queue);
    free(a), free(b);
}

/* Computes C from the column-major description, as a BLAS would. */
TEST(column_major_gemm_describes_the_transposed_problem)
{
    enum { M = 3, N = 5, K = 4 };
    for (unsigned i = 0; i < 4; i++) {
        struct gemm g = {M, N, K, .transpose_a = i & 1, .transpose_b = i & 2};
        float *a = rig_random(1, M * K, F32), *b = rig_random(2, K * N, F32), c[M * N];
        struct gemm_io io = {.a = a, .b = b, .c = c};
        struct column_major l = column_major_gemm(&g);
        CHECK(l.m == l.result.rows && l.n == l.result.columns && l.k == K);
        for (int column = 0; column < l.n; column++)
            for (int row = 0; row < l.m; row++) {
                float sum = 0;
                for (int k = 0; k < l.k; k++) {
                    int first =
                        l.first.transposed ? row * l.first.rows + k : k * l.first.rows + row;
                    int second = l.second.transposed ? k * l.second.rows + column
                                                     : column * l.second.rows + k;
                    sum += b[first] * a[second];
                }
                c[column * l.result.rows + row] = sum;
            }
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++)
                CHECK_NEAR((double)c[m * N + n], element_of(&g, &io, m, n), 1e-5);
        free(a), free(b);
    }
}

TEST(gemm_factors_are_written_to_device_memory)
{
    struct float8_scale one = {4, 0.25f}, other = {0.5f, 2};
    struct gemm g = {.accumulate = true, .scaled = true};
    struct gemm_io io = {.a_scale = &one, .b_scale = &other};
    struct gemm_factors got = {0};
    struct queue *queue;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    emulator_set_relaxed(true);
    CHECK_STATUS(OK, gpu_emu32_gemm_factors(&g, &io, &got, queue));
    CHECK(got.alpha == 0.5f && got.beta == 1);
    emulator_set_relaxed(false);
    gpu_emu32_close(queue);
}
