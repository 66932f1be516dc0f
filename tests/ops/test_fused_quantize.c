// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_quantize.h"
#include "ops/rig.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"

/* One result, by the fused ops and by those that store it. */
struct comparison {
    const struct ops *ops, *unfused;
    enum fused_result of;
    int N, C;
    enum dtype dtype;
    enum float8 to;
    void *x, *w, *dout, *result;
    float *rstd, *fused_rstd;
};

static size_t columns_of(const struct comparison *k) { return fused_columns(k->of, k->C); }

static void open_comparison(struct comparison *k, bool has_nan)
{
    size_t n = (size_t)k->N * (size_t)k->C, inputs = k->of >= FUSED_SWIGLU ? 2 * n : n;
    k->x = rig_random(1, inputs, k->dtype), k->w = rig_random(2, (size_t)k->C, k->dtype);
    k->dout = rig_random(3, n, k->dtype);
    k->result = rig_zeros((size_t)k->N * columns_of(k), k->dtype);
    k->rstd = rig_zeros((size_t)k->N, F32), k->fused_rstd = rig_zeros((size_t)k->N, F32);
    if (has_nan && k->dtype == F32) ((float *)k->x)[n / 2] = NAN;
    if (has_nan && k->dtype == BF16) ((bf16 *)k->x)[n / 2] = 0x7FC0;
}

static void close_comparison(struct comparison *k)
{
    free(k->x), free(k->w), free(k->dout), free(k->result), free(k->rstd), free(k->fused_rstd);
}

/* Stores the result and returns its amax. */
static float run_unfused(struct comparison *k)
{
    struct rmsnorm norm = {.N = k->N, .D = k->C, .eps = 1e-5f, .dtype = k->dtype};
    struct rmsnorm_fwd norm_io = {k->x, k->w, k->result, k->rstd, NULL};
    struct swiglu swiglu = {.N = k->N, .F = k->C, .dtype = k->dtype};
    struct swiglu_fwd forward = {k->x, k->result, NULL};
    struct swiglu_bwd backward = {k->x, k->dout, k->result, NULL};
    size_t n = (size_t)k->N * columns_of(k);
    struct amax amax_op = {n, k->dtype};
    float max = 0;
    if (k->of == FUSED_TENSOR) memcpy(k->result, k->x, n * dtype_bytes(k->dtype));
    if (k->of == FUSED_RMSNORM) RIG_RUN(rmsnorm_forward(k->unfused, &norm, &norm_io, rig_queue()));
    if (k->of == FUSED_SWIGLU) RIG_RUN(swiglu_forward(k->unfused, &swiglu, &forward, rig_queue()));
    if (k->of == FUSED_SWIGLU_GRAD)
        RIG_RUN(swiglu_backward(k->unfused, &swiglu, &backward, rig_queue()));
    RIG_RUN(amax(k->unfused, &amax_op, &(struct amax_io){k->result, &max}, rig_queue()));
    return max;
}

/* Every NaN as 7fc0. */
static void make_nan_equal(bf16 *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((y[i] & 0x7FFF) > 0x7F80) y[i] = 0x7FC0;
}

static void check_values(const struct comparison *k, const struct float8_scale *scale, bf16 *y)
{
    size_t n = (size_t)k->N * columns_of(k);
    bf16 *expected = heap(n * sizeof *expected);
    struct quantize op = {.n = n, .dtype = k->dtype, .to = k->to};
    struct quantize_io io = {k->result, expected, scale};
    RIG_RUN(quantize(k->unfused, &op, &io, rig_queue()));
    make_nan_equal(y, n), make_nan_equal(expected, n);
    if (memcmp(y, expected, n * sizeof *y))
        fail_msg("%s: result %d of %d x %d differs", k->ops->backend, k->of, k->N, k->C);
    free(expected);
}

static void compare(struct comparison *k)
{
    float max = run_unfused(k), found = 0, running = 0.5f, raised = 0.25f;
    float parts[] = {0.5f * max, max, -0.0f};
    struct float8_scale scale = {0}, given = {3, 1 / 3.0f};
    bf16 *y = rig_zeros((size_t)k->N * columns_of(k), BF16);
    struct fused_amax a = {k->of, k->N, k->C, 1e-5f, k->dtype};
    struct fused_amax_io amax_io = {k->x, k->w, k->dout, k->fused_rstd, &found};
    struct fused_quantize q = {k->of, k->N, k->C, k->dtype, k->to, 0, 0};
    struct fused_quantize_io io = {k->x, k->w, k->dout, k->fused_rstd, y, NULL, {0}, NULL};
    io.find = (struct find_scale_io){.amax = &found, .running = &running, .scale = &scale};
    RIG_RUN(fused_amax(k->ops, &a, &amax_io, rig_queue()));
    CHECK(isnan(max) ? isnan(found) : found == max);
    if (k->of == FUSED_RMSNORM)
        CHECK(!memcmp(k->rstd, k->fused_rstd, (size_t)k->N * sizeof *k->rstd) || isnan(max));
    RIG_RUN(fused_quantize(k->ops, &q, &io, rig_queue()));
    if (!isnan(max)) {
        CHECK(scale.scale == float8_current_scale(max, k->to) && scale.inverse == 1 / scale.scale);
        CHECK(running == (max > 0.5f ? max : 0.5f));
        check_values(k, &scale, y);
    }
    q.amaxes = 3, io.find.amax = parts;
    RIG_RUN(fused_quantize(k->ops, &q, &io, rig_queue()));
    CHECK(isnan(max) ? isnan(scale.scale) : scale.scale == float8_current_scale(max, k->to));
    q.amaxes = 0, io.scale = &given, io.amax = &raised;
    RIG_RUN(fused_quantize(k->ops, &q, &io, rig_queue()));
    check_values(k, &given, y);
    CHECK(isnan(max) ? isfinite(raised) : raised == (max > 0.25f ? max : 0.25f));
    free(y);
}

OPS_TEST(fused_quantize_matches_the_ops_that_store_their_result)
{
    static const int sizes[][2] = {{1, 1}, {3, 7}, {17, 16}, {5, 64}, {70, 80}, {2, 1030}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 16; variant++) {
            struct comparison k = {.ops = rig_fast(), .N = sizes[i][0], .C = sizes[i][1]};
            k.of = (enum fused_result)(variant / 4), k.dtype = variant & 1 ? BF16 : F32;
            k.to = variant & 2 ? E5M2 : E4M3;
            /* On the CPU the fused ops are the reference, whose exp is not that of the others. */
            k.unfused = rig_is_gpu() ? k.ops : &ops_cpu_reference;
            open_comparison(&k, i == 3);
            compare(&k);
            close_comparison(&k);
        }
}

OPS_TEST(fused_quantize_keeps_values_that_are_quantized)
{
    enum { N = 5, C = 33 };
    struct float8_scale scale = {2, 0.5f};
    float *x = rig_random(1, N * C, F32);
    bf16 *x8 = rig_zeros(N * C, BF16), *y = rig_zeros(N * C, BF16);
    struct quantize op = {.n = N * C, .to = E5M2};
    RIG_RUN(quantize(rig_fast(), &op, &(struct quantize_io){x, x8, &scale}, rig_queue()));
    struct fused_quantize again = {FUSED_FP8, N, C, BF16, E5M2, OVER_ROWS, 0};
    struct fused_quantize_io io = {.x = x8, .y = y}, in_place = {.x = x8, .y = x8};
    RIG_RUN(fused_quantize(rig_fast(), &again, &io, rig_queue()));
    CHECK(!memcmp(x8, y, N * C * sizeof *y));
    RIG_RUN(fused_quantize(rig_fast(), &again, &in_place, rig_queue()));
    CHECK(!memcmp(x8, y, N * C * sizeof *y));
    free(x), free(x8), free(y);
}

TEST(fused_ops_reject_empty_tensors)
{
    CHECK_STATUS(SHAPE, fused_amax(&ops_cpu_reference, &(struct fused_amax){.N = 1}, NULL, NULL));
    CHECK_STATUS(SHAPE,
                 fused_quantize(&ops_cpu_reference, &(struct fused_quantize){.C = 1}, NULL, NULL));
}
