// SPDX-License-Identifier: Apache-2.0
#include "model/matmul.h"
#include "model/rig.h"

#include "model/unit.h"
#include "ops/linear.h"

/* A model that multiplies in FP8, with current or delayed scaling. */
struct float8_rig {
    struct rig r;
    struct float8_state state;
    struct arena arena;
};

static void open_rig(struct float8_rig *f, enum float8_recipe recipe, enum dtype dtype)
{
    struct model_shape s = rig_shape();
    struct float8_config c = {
        .recipe_name = recipe, .amax_history_len = 4, .amax_compute_algo = AMAX_ALGO_max};
    s.K = 8, s.F = 32;
    rig_open(&f->r, &s, dtype, 2, 12);
    CHECK_STATUS(OK, arena_init(&f->arena, 1 << 16, NULL));
    CHECK_STATUS(OK, float8_init(&f->state, &c, &s, &f->arena, &f->arena));
    float8_begin_step(&f->state);
    f->r.m.float8 = &f->state;
}

static void close_rig(struct float8_rig *f)
{
    float8_release(&f->state);
    arena_release(&f->arena);
    rig_close(&f->r);
}

/* The FP8 values of x, as f32 after unscaling. */
static float *quantized(const float *x, size_t n, enum float8 to, float *scale, struct queue *queue)
{
    struct amax amax_op = {n, F32};
    float max;
    bf16 *rounded = heap(n * sizeof *rounded);
    float *wide = heap(n * sizeof *wide);
    CHECK_STATUS(OK, amax(&ops_cpu_reference, &amax_op, &(struct amax_io){x, &max}, queue));
    *scale = float8_current_scale(max, to);
    struct quantize op = {.n = n, .dtype = F32, .to = to};
    struct float8_scale by = {*scale, 1 / *scale};
    CHECK_STATUS(OK,
                 quantize(&ops_cpu_reference, &op, &(struct quantize_io){x, rounded, &by}, queue));
    for (size_t i = 0; i < n; i++) wide[i] = bf16_to_f32(rounded[i]) / *scale;
    free(rounded);
    return wide;
}

static float *random_values(uint64_t seed, size_t n)
{
    float *x = heap(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(seed, RNG_TEST, 0, i);
    return x;
}

static void check_close(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) CHECK_NEAR((double)got[i], (double)want[i], 1e-5);
}

/* y = x8 w8^T, dx = dy8 w8, dw = dy8^T x8, where x8 are the FP8 values of x over their scale. */
TEST(fp8_matmul_and_gradients_match_the_quantized_operands)
{
    enum { N = 5, LAYER = 1 };
    struct float8_rig f;
    open_rig(&f, FLOAT8_RECIPE_tensorwise, F32);
    struct model *m = &f.r.m;
    size_t D = (size_t)m->shape.D, F = 2 * (size_t)m->shape.F;
    float *x = random_values(1, N * D), *dy = random_values(2, N * F), scales[3];
    struct float8_scale saved[MATMUL_COUNT] = {0};
    float y[N * 64], dx[N * 16], want_y[N * 64], want_dx[N * 16], *want_dw = heap(F * D * 4);
    memset(f.r.gradients, 0, m->layout.elements * sizeof(float));
    CHECK_STATUS(OK, unit_open(m, PARAM_attn_norm, LAYER, USE_WEIGHTS | USE_GRADIENTS));
    const float *w = unit_weight(m, PARAM_mlp_gate, LAYER);
    float *x8 = quantized(x, N * D, E4M3, &scales[0], m->queue);
    float *w8 = quantized(w, F * D, E4M3, &scales[1], m->queue);
    float *dy8 = quantized(dy, N * F, E5M2, &scales[2], m->queue);
    struct linear plain = {.N = N, .D = (int)D, .F = (int)F, .dtype = F32};
    linear_forward(m->ops, &plain, &(struct linear_fwd){.x_ND = x8, .w_FD = w8, .y_NF = want_y},
                   m->queue);
    linear_backward_input(m->ops, &plain,
                          &(struct linear_bwd_input){.dy_NF = dy8, .w_FD = w8, .dx_ND = want_dx},
                          m->queue);
    linear_backward_weight(m->ops, &plain,
                           &(struct linear_bwd_weight){.dy_NF = dy8, .x_ND = x8, .dw_FD = want_dw},
                           m->queue);
    struct matmul_call call = {MATMUL_mlp_gate, LAYER, N, .input_scales = saved};
    CHECK_STATUS(OK, matmul_forward(m, &call, x, y, NULL));
    CHECK_STATUS(OK, matmul_backward(m, &call, dy, x, dx));
    CHECK(saved[MATMUL_mlp_gate].scale == scales[0]);
    CHECK(saved[MATMUL_mlp_gate].inverse == 1 / scales[0]);
    check_close(y, want_y, N * F);
    check_close(dx, want_dx, N * D);
    check_close(unit_gradient(m, PARAM_mlp_gate, LAYER), want_dw, F * D);
    free(x), free(dy), free(x8), free(w8), free(dy8), free(want_dw);
    close_rig(&f);
}

/* Gradients of some steps under a recipe, and the scales afterwards. */
static void gradients_of(enum float8_recipe recipe, enum recompute recompute, float *gradients,
                         float *scales)
{
    struct float8_rig f;
    open_rig(&f, recipe, BF16);
    f.r.m.recompute = recompute;
    for (int step = 0; step < 3; step++) {
        float8_begin_step(&f.state);
        rig_train(&f.r);
        float8_collect_amax(&f.state), float8_update_scales(&f.state);
    }
    memcpy(gradients, f.r.gradients, f.r.m.layout.elements * sizeof *gradients);
    memcpy(scales, f.state.scales, float8_num_amax(&f.state) * sizeof *scales);
    close_rig(&f);
}

TEST(recomputation_changes_neither_gradients_nor_scales)
{
    enum { MOST = 1 << 15, SCALES = 64 };
    float *one = heap(MOST * sizeof *one), *other = heap(MOST * sizeof *other);
    for (int delayed = 0; delayed < 2; delayed++)
        for (enum recompute r = RECOMPUTE_SELECTIVE; r < RECOMPUTE_COUNT; r++) {
            float scales[2][SCALES] = {0};
            enum float8_recipe recipe = delayed ? FLOAT8_RECIPE_delayed : FLOAT8_RECIPE_tensorwise;
            gradients_of(recipe, RECOMPUTE_NONE, one, scales[0]);
            gradients_of(recipe, r, other, scales[1]);
            CHECK(!memcmp(one, other, MOST * sizeof *one));
            CHECK(!memcmp(scales[0], scales[1], sizeof scales[0]));
            for (int i = 0; i < 36 && delayed; i++) CHECK(scales[0][i] > 0);
        }
    free(one), free(other);
}

/* Cosine similarity of the gradients with FP8 and without. */
static double cosine(enum float8_recipe recipe, enum dtype dtype)
{
    struct float8_rig f;
    double both = 0, one = 0, other = 0;
    open_rig(&f, recipe, dtype);
    size_t n = f.r.m.layout.elements;
    float *with = heap(n * sizeof *with);
    rig_train(&f.r);
    memcpy(with, f.r.gradients, n * sizeof *with);
    f.r.m.float8 = NULL;
    rig_train(&f.r);
    for (size_t i = 0; i < n; i++) {
        double x = (double)with[i], y = (double)f.r.gradients[i];
        both += x * y, one += x * x, other += y * y;
    }
    free(with);
    close_rig(&f);
    return both / sqrt(one * other);
}

TEST(fp8_gradients_are_close_to_unquantized_ones)
{
    for (enum dtype dtype = F32; dtype <= BF16; dtype++)
        for (int delayed = 0; delayed < 2; delayed++) {
            double c = cosine(delayed ? FLOAT8_RECIPE_delayed : FLOAT8_RECIPE_tensorwise, dtype);
            if (!(c > 0.95 && c < 0.999999)) fail_msg("cosine %.6f", c);
        }
}

TEST(evaluation_quantizes_and_saves_no_scale)
{
    struct float8_rig f;
    open_rig(&f, FLOAT8_RECIPE_tensorwise, BF16);
    double with = rig_loss(&f.r);
    f.r.m.float8 = NULL;
    double without = rig_loss(&f.r);
    CHECK(fabs(with - without) > 1e-6 && fabs(with - without) < 0.1 * without);
    close_rig(&f);
}

TEST(filtered_matmuls_are_bit_identical_to_unquantized_ones)
{
    struct float8_rig f;
    open_rig(&f, FLOAT8_RECIPE_tensorwise, BF16);
    memset(f.state.enabled, 0, (size_t)f.state.blocks * MATMUL_COUNT * sizeof *f.state.enabled);
    double with = rig_loss(&f.r);
    f.r.m.float8 = NULL;
    CHECK(with == rig_loss(&f.r));
    close_rig(&f);
}

TEST(nan_propagates_to_the_loss)
{
    struct float8_rig f;
    open_rig(&f, FLOAT8_RECIPE_delayed, F32);
    rig_train(&f.r);
    float8_collect_amax(&f.state), float8_update_scales(&f.state), float8_begin_step(&f.state);
    f.r.weights[layout_find(&f.r.m.layout, PARAM_mlp_norm, 1)->offset] = NAN;
    rig_train(&f.r);
    CHECK(isnan(f.r.loss[0]));
    close_rig(&f);
}
