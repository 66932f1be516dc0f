// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/fp8.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "ops/fused_quantize.h"
#include "ops/linear.h"

/* An emulated device with native FP8, of either warp size. */
static const struct ops *open_device(int warp_size, struct queue **queue)
{
    const struct ops *ops;
    CHECK_STATUS(OK, warp_size == 32 ? gpu_emu32_open(queue, 0) : gpu_emu64_open(queue, 0));
    ops = warp_size == 32 ? &gpu_emu32_ops : &gpu_emu64_ops;
    ((struct gpu_queue *)*queue)->native_fp8 = true;
    emulator_set_relaxed(true);
    return ops;
}

static void close_device(int warp_size, struct queue *queue)
{
    emulator_set_relaxed(false);
    (warp_size == 32 ? gpu_emu32_close : gpu_emu64_close)(queue);
}

/* The value of an FP8 byte, by definition. */
static float fp8_value(uint8_t x, enum float8 format)
{
    int mantissa = format == E4M3 ? 3 : 2, bias = format == E4M3 ? 7 : 15;
    int exponent = (x & 0x7F) >> mantissa, low = x & ((1 << mantissa) - 1);
    float size = exponent ? (float)(low + (1 << mantissa)) : (float)low;
    if ((x & 0x7F) == 0x7F) return NAN;
    size = ldexpf(size, (exponent ? exponent : 1) - bias - mantissa);
    return x & 0x80 ? -size : size;
}

/* Compares the bytes of both storage orders with the reference's bf16. */
static void check_quantized(const struct ops *ops, struct queue *queue, struct quantize a,
                            const void *x)
{
    struct float8_scale scale = {0.75f, 1 / 0.75f};
    size_t rows = a.n / a.columns;
    bf16 *reference = heap(a.n * sizeof *reference), *y = heap(a.n * sizeof *y);
    const uint8_t *row_major = (const uint8_t *)y, *column_major = row_major + a.n;
    CHECK_STATUS(
        OK, quantize(&ops_cpu_reference, &a, &(struct quantize_io){x, reference, &scale}, queue));
    memset(y, 0x55, a.n * sizeof *y);
    CHECK_STATUS(OK, quantize(ops, &a, &(struct quantize_io){x, y, &scale}, queue));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < a.columns; c++) {
            float expected = bf16_to_f32(reference[r * a.columns + c]);
            uint8_t one = row_major[r * a.columns + c], other = column_major[c * rows + r];
            if (isnan(expected)) {
                CHECK((one & 0x7F) == 0x7F && one == other);
                continue;
            }
            if (a.summed & OVER_COLUMNS) CHECK(fp8_value(one, a.to) == expected);
            if (a.summed & OVER_COLUMNS) CHECK((one >> 7) == (reference[r * a.columns + c] >> 15));
            if (a.summed & OVER_ROWS) CHECK(fp8_value(other, a.to) == expected);
            if (!(a.summed & OVER_COLUMNS)) CHECK(one == 0x55);
            if (!(a.summed & OVER_ROWS)) CHECK(other == 0x55);
        }
    free(reference), free(y);
}

TEST(fp8_bytes_match_the_reference_for_every_bf16)
{
    enum { ALL = 1 << 16 };
    bf16 *x = heap(ALL * sizeof *x);
    for (uint32_t i = 0; i < ALL; i++) x[i] = (bf16)i;
    for (int warp_size = 32; warp_size <= 64; warp_size += 32) {
        struct queue *queue;
        const struct ops *ops = open_device(warp_size, &queue);
        for (enum float8 to = 0; to < FLOAT8_COUNT; to++)
            check_quantized(ops, queue,
                            (struct quantize){.n = ALL,
                                              .columns = 256,
                                              .dtype = BF16,
                                              .to = to,
                                              .summed = OVER_COLUMNS | OVER_ROWS},
                            x);
        close_device(warp_size, queue);
    }
    free(x);
}

TEST(fp8_quantize_writes_the_requested_storage_orders_at_odd_sizes)
{
    static const size_t sizes[][2] = {{1, 1}, {3, 16}, {17, 5}, {64, 80}, {130, 67}};
    struct queue *queue;
    const struct ops *ops = open_device(32, &queue);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned summed = OVER_COLUMNS; summed <= (OVER_COLUMNS | OVER_ROWS); summed++)
            for (int half = 0; half < 2; half++) {
                size_t n = sizes[i][0] * sizes[i][1];
                enum dtype dtype = half ? BF16 : F32;
                void *x = rig_random(i, n, dtype);
                struct quantize a = {.n = n, .columns = sizes[i][1], .dtype = dtype};
                a.to = half ? E5M2 : E4M3, a.summed = summed;
                check_quantized(ops, queue, a, x);
                free(x);
            }
    close_device(32, queue);
}

/* Compares the bytes of both storage orders with the bf16 values of a device without native FP8. */
static void check_fused(int warp_size, struct fused_quantize a)
{
    struct queue *queue;
    const struct ops *ops = open_device(warp_size, &queue);
    size_t rows = (size_t)a.N, columns = fused_columns(a.of, a.C), n = rows * columns;
    struct float8_scale scale = {0.75f, 1 / 0.75f};
    void *x = rig_random(1, 2 * rows * (size_t)a.C, a.dtype), *dout = rig_random(2, n, a.dtype);
    void *w = rig_random(3, (size_t)a.C, a.dtype);
    float *rstd = rig_random(4, rows, F32);
    bf16 *y = heap(n * sizeof *y), *values = heap(n * sizeof *values);
    struct fused_quantize_io io = {
        .x = x, .w_C = w, .dout_NF = dout, .rstd_N = rstd, .y = values, .scale = &scale};
    ((struct gpu_queue *)queue)->native_fp8 = false;
    CHECK_STATUS(OK, fused_quantize(ops, &a, &io, queue));
    ((struct gpu_queue *)queue)->native_fp8 = true;
    io.y = y;
    memset(y, 0x55, n * sizeof *y);
    CHECK_STATUS(OK, fused_quantize(ops, &a, &io, queue));
    const uint8_t *row_major = (const uint8_t *)y, *column_major = row_major + n;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            uint8_t one = row_major[r * columns + c], other = column_major[c * rows + r];
            float expected = bf16_to_f32(values[r * columns + c]);
            CHECK(a.summed & OVER_COLUMNS ? fp8_value(one, a.to) == expected : one == 0x55);
            CHECK(a.summed & OVER_ROWS ? fp8_value(other, a.to) == expected : other == 0x55);
        }
    free(x), free(dout), free(w), free(rstd), free(y), free(values);
    close_device(warp_size, queue);
}

TEST(fused_quantize_writes_the_requested_storage_orders_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1}, {3, 16}, {17, 5}, {32, 24}, {64, 80}, {130, 67}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 16; variant++)
            check_fused(variant & 1 ? 64 : 32,
                        (struct fused_quantize){.of = (enum fused_result)(variant / 4),
                                                .N = sizes[i][0],
                                                .C = sizes[i][1],
                                                .dtype = variant & 2 ? BF16 : F32,
                                                .to = variant & 1 ? E5M2 : E4M3,
                                                .summed = 1 + (unsigned)((size_t)variant + i) % 3});
}

TEST(fused_quantize_adds_the_other_storage_order_to_quantized_values)
{
    static const int sizes[][2] = {{1, 1}, {3, 16}, {17, 5}, {64, 80}, {130, 67}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 4; variant++) {
            struct queue *queue;
            int warp_size = variant & 1 ? 64 : 32;
            const struct ops *ops = open_device(warp_size, &queue);
            size_t rows = (size_t)sizes[i][0], columns = (size_t)sizes[i][1], n = rows * columns;
            uint8_t *y = heap(2 * n);
            for (size_t k = 0; k < n; k++) y[k] = (uint8_t)(k * 37), y[n + k] = 0x55;
            struct fused_quantize a = {.of = FUSED_FP8, .N = sizes[i][0], .C = sizes[i][1]};
            a.to = variant & 2 ? E5M2 : E4M3, a.summed = OVER_ROWS;
            struct fused_quantize_io io = {.x = y, .y = (bf16 *)y};
            CHECK_STATUS(OK, fused_quantize(ops, &a, &io, queue));
            for (size_t r = 0; r < rows; r++)
                for (size_t c = 0; c < columns; c++) {
                    uint8_t in = y[r * columns + c], out = y[n + c * rows + r];
                    bool is_nan = (in & 0x7F) == 0x7F;
                    /* Quantization saturates, and writes NaN as 0x7F. */
                    bool is_never_written = a.to == E5M2 && (in & 0x7F) >= 0x7C && !is_nan;
                    CHECK(in == (uint8_t)((r * columns + c) * 37));
                    CHECK(is_never_written || (is_nan ? (out & 0x7F) == 0x7F : out == in));
                }
            free(y);
            close_device(warp_size, queue);
        }
}

static bf16 *quantized(const struct ops *ops, struct queue *queue, const void *x, size_t n,
                       size_t columns, enum dtype dtype, enum float8 to,
                       const struct float8_scale *scale)
{
    bf16 *y = heap(n * sizeof *y);
    struct quantize a = {.n = n, .columns = columns, .dtype = dtype, .to = to};
    CHECK_STATUS(OK, quantize(ops, &a, &(struct quantize_io){x, y, scale}, queue));
    return y;
}

/* The three FP8 GEMMs, compared with the reference on the same values. */
static void compare(int warp_size, struct linear l)
{
    size_t N = (size_t)l.N, D = (size_t)l.D, F = (size_t)l.F;
    struct float8_scale scales[3] = {{2, 0.5f}, {0.5f, 2}, {4, 0.25f}};
    void *x = rig_random(1, N * D, l.dtype), *w = rig_random(2, F * D, l.dtype);
    void *dy = rig_random(3, N * F, l.dtype), *y[2], *dx[2];
    float *dw[2];
    struct queue *queue;
    const struct ops *device = open_device(warp_size, &queue);
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? device : &ops_cpu_reference;
        bf16 *x8 = quantized(ops, queue, x, N * D, D, l.dtype, E4M3, &scales[0]);
        bf16 *w8 = quantized(ops, queue, w, F * D, D, l.dtype, E4M3, &scales[1]);
        bf16 *dy8 = quantized(ops, queue, dy, N * F, F, l.dtype, E5M2, &scales[2]);
        y[i] = rig_random(4, N * F, l.dtype), dx[i] = rig_random(5, N * D, l.dtype);
        dw[i] = rig_random(6, F * D, F32);
        struct linear_fwd forward = {x8, w8, y[i], &scales[0], &scales[1], NULL};
        struct linear_bwd_input input = {dy8, w8, dx[i], &scales[2], &scales[1]};
        struct linear_bwd_weight weight = {dy8, x8, dw[i], &scales[2], &scales[0]};
        CHECK_STATUS(OK, linear_forward(ops, &l, &forward, queue));
        CHECK_STATUS(OK, linear_backward_input(ops, &l, &input, queue));
        CHECK_STATUS(OK, linear_backward_weight(ops, &l, &weight, queue));
        free(x8), free(w8), free(dy8);
    }
    RIG_CLOSE(y[1], y[0], N * F, l.dtype);
    RIG_CLOSE(dx[1], dx[0], N * D, l.dtype);
    RIG_CLOSE(dw[1], dw[0], F * D, F32);
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(dw[i]);
    free(x), free(w), free(dy);
    close_device(warp_size, queue);
}

TEST(fp8_gemms_match_bf16_gemms_of_the_same_values)
{
    static const int sizes[][3] = {{1, 1, 1}, {5, 33, 17}, {48, 64, 80}, {70, 16, 32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned variant = 0; variant < 8; variant++)
            compare(variant & 4 ? 64 : 32, (struct linear){.N = sizes[i][0],
                                                           .D = sizes[i][1],
                                                           .F = sizes[i][2],
                                                           .dtype = variant & 1 ? BF16 : F32,
                                                           .accumulate = variant & 2,
                                                           .float8 = true});
}
