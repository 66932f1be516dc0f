// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/vendor/column_major.h"
#include "ops/float8.h"

/* Both widths of a wave have the function. */
enum status gpu_emu64_gemm_tiled(const struct gemm *g, const struct gemm_io *io, struct queue *on);

static enum dtype dtype_of(enum gemm_number x) { return x == GEMM_F32 ? F32 : BF16; }

static double number(const void *x, size_t at, enum dtype dtype)
{
    return dtype == F32 ? (double)((const float *)x)[at]
                        : (double)bf16_to_f32(((const bf16 *)x)[at]);
}

/* Row after row, and by the transpositions as the header has them. */
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

static void check(const struct gemm *g, int wave)
{
    enum { MANY = 1 << 16, SOME = 13 };
    size_t a = (size_t)g->M * (size_t)g->K, b = (size_t)g->K * (size_t)g->N;
    size_t c = (size_t)g->M * (size_t)g->N;
    struct float8_scale one = {4, 0.25f}, other = {0.5f, 2};
    void *old = rig_random(3, c, g->out), *got[2];
    struct gemm_io io = {.a = rig_random(1, a, dtype_of(g->a)),
                         .b = rig_random(2, b, dtype_of(g->b)),
                         .a_scale = &one,
                         .b_scale = &other};
    struct queue *on;
    CHECK_STATUS(OK, wave == 32 ? gpu_emu32_open(&on, 0) : gpu_emu64_open(&on, 0));
    gpu_emulator_plain(true);
    for (int i = 0; i < 2; i++) {
        io.c = got[i] = rig_copy(old, c, g->out), io.d = i ? old : io.c;
        if (i) memset(io.c, 0xFF, c * dtype_bytes(g->out));
        CHECK_STATUS(OK, (wave == 32 ? gpu_emu32_gemm_tiled : gpu_emu64_gemm_tiled)(g, &io, on));
    }
    CHECK(!memcmp(got[0], got[1], c * dtype_bytes(g->out)));
    for (int m = 0; m < g->M; m++) /* of many, some */
        for (int n = c > MANY ? m % SOME : 0; n<g->N; n += c> MANY ? SOME : 1) {
            size_t at = (size_t)m * (size_t)g->N + (size_t)n;
            double want = element_of(g, &io, m, n), have = number(got[0], at, g->out);
            if (g->accumulate) want += number(old, at, g->out);
            double near = g->out == F32 ? 1e-4 : 0.02;
            if (!(fabs(have - want) <= near * (1 + fabs(want))))
                fail_msg("%d x %d x %d, wave %d: C[%d][%d] %g, wanted %g", g->M, g->N, g->K, wave,
                         m, n, have, want);
        }
    gpu_emulator_plain(false);
    (wave == 32 ? gpu_emu32_close : gpu_emu64_close)(on);
    free(old), free(got[0]), free(got[1]);
    free((void *)(uintptr_t)io.a), free((void *)(uintptr_t)io.b);
}

static void check_kinds(int M, int N, int K, int wave)
{
    static const struct {
        enum gemm_number number;
        enum dtype out;
    } kinds[] = {{GEMM_F32, F32}, {GEMM_BF16, BF16}, {GEMM_BF16, F32}};
    for (unsigned i = 0; i < 3 * 8; i++) {
        unsigned kind = i / 8;
        struct gemm g = {.M = M, .N = N, .K = K, .transpose_a = i & 1, .transpose_b = i & 2};
        g.accumulate = i & 4, g.a = g.b = kinds[kind].number, g.out = kinds[kind].out;
        g.scaled = g.a == GEMM_BF16 && g.out == F32;
        check(&g, wave);
    }
}

TEST(products_by_tiles_are_the_sums_at_every_size_and_transposition)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 70, 5}, {65, 16, 33}, {72, 80, 96}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wave = 32; wave <= 64; wave += 32)
            check_kinds(sizes[i][0], sizes[i][1], sizes[i][2], wave);
}

TEST(products_by_large_squares_are_the_sums_past_their_edges)
{
    for (int wave = 32; wave <= 64; wave += 32)
        for (unsigned i = 0; i < 4; i += wave == 32 ? 1 : 3) {
            struct gemm g = {.M = 7 * 128 + 3, .N = 7 * 128 + 8, .K = 37, .a = GEMM_BF16};
            g.b = g.a, g.out = BF16, g.transpose_a = i & 1, g.transpose_b = i & 2;
            check(&g, wave);
        }
}

TEST(operands_off_their_boundaries_are_read_one_by_one)
{
    enum { M = 20, N = 24, K = 40 };
    bf16 *a = rig_random(1, M * K + 1, BF16), *b = rig_random(2, N * K + 1, BF16);
    float got[M * N], want[M * N];
    struct queue *on;
    struct gemm g = {M, N, K, .transpose_b = true, .a = GEMM_BF16, .b = GEMM_BF16, .out = F32};
    CHECK_STATUS(OK, gpu_emu32_open(&on, 0));
    gpu_emulator_plain(true);
    struct gemm_io io = {.a = a + 1, .b = b + 1, .c = got};
    CHECK_STATUS(OK, gpu_emu32_gemm_tiled(&g, &io, on));
    memmove(a, a + 1, M * K * sizeof *a), memmove(b, b + 1, N * K * sizeof *b);
    io = (struct gemm_io){.a = a, .b = b, .c = want};
    CHECK_STATUS(OK, gpu_emu32_gemm_tiled(&g, &io, on));
    CHECK(!memcmp(got, want, sizeof got));
    gpu_emulator_plain(false);
    gpu_emu32_close(on);
    free(a), free(b);
}

/* What a library of columns is told gives C, when it is done as BLAS says. */
TEST(rows_are_columns_of_the_transposed_product)
{
    enum { M = 3, N = 5, K = 4 };
    for (unsigned i = 0; i < 4; i++) {
        struct gemm g = {M, N, K, .transpose_a = i & 1, .transpose_b = i & 2};
        float *a = rig_random(1, M * K, F32), *b = rig_random(2, K * N, F32), c[M * N];
        struct gemm_io io = {.a = a, .b = b, .c = c};
        struct gemm_columns l = gemm_columns(&g);
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

TEST(factors_lie_where_the_device_reads_them)
{
    struct float8_scale one = {4, 0.25f}, other = {0.5f, 2};
    struct gemm g = {.accumulate = true, .scaled = true};
    struct gemm_io io = {.a_scale = &one, .b_scale = &other};
    struct gemm_factors got = {0};
    struct queue *on;
    CHECK_STATUS(OK, gpu_emu32_open(&on, 0));
    gpu_emulator_plain(true);
    CHECK_STATUS(OK, gpu_emu32_gemm_factors(&g, &io, &got, on));
    CHECK(got.alpha == 0.5f && got.beta == 1);
    gpu_emulator_plain(false);
    gpu_emu32_close(on);
}
