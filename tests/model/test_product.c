// SPDX-License-Identifier: Apache-2.0
#include "model/product.h"
#include "model/rig.h"

#include "model/block.h"
#include "ops/linear.h"

/* A model whose products are of eight bits; its scales come from where `recipe` says. */
struct float8_rig {
    struct rig r;
    struct float8_state state;
    struct arena arena;
};

static void open_rig(struct float8_rig *f, const char *recipe, enum dtype dtype)
{
    struct model_shape s = rig_shape();
    struct float8_config c = {.recipe_name = recipe,
                              .scaling_type_input = "auto",
                              .scaling_type_weight = "auto",
                              .scaling_type_grad_output = "auto",
                              .amax_history_len = 4,
                              .amax_compute_algo = "max"};
    s.K = 8, s.F = 32;
    rig_open(&f->r, &s, dtype, 2, 12);
    CHECK_STATUS(OK, arena_init(&f->arena, 1 << 16, NULL));
    CHECK_STATUS(OK, float8_init(&f->state, &c, &s, &f->arena, &f->arena));
    float8_begin(&f->state);
    f->r.m.float8 = &f->state;
}

static void close_rig(struct float8_rig *f)
{
    float8_release(&f->state);
    arena_release(&f->arena);
    rig_close(&f->r);
}

/* What eight bits of x are, as f32 of any scale. */
static float *values(const float *x, size_t n, enum float8 to, float *scale, struct queue *on)
{
    struct amax largest = {n, F32};
    float most;
    bf16 *rounded = heap(n * sizeof *rounded);
    float *wide = heap(n * sizeof *wide);
    CHECK_STATUS(OK, amax(&ops_cpu_reference, &largest, &(struct amax_io){x, &most}, on));
    *scale = float8_current(most, to);
    struct quantize what = {.n = n, .dtype = F32, .to = to};
    struct float8_scale by = {*scale, 1 / *scale};
    CHECK_STATUS(OK,
                 quantize(&ops_cpu_reference, &what, &(struct quantize_io){x, rounded, &by}, on));
    for (size_t i = 0; i < n; i++) wide[i] = bf16_to_f32(rounded[i]) / *scale;
    free(rounded);
    return wide;
}

static float *numbers(uint64_t seed, size_t n)
{
    float *x = heap(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(seed, RNG_TEST, 0, i);
    return x;
}

static void check_close(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) CHECK_NEAR((double)got[i], (double)want[i], 1e-5);
}

/* y = x8 w8^T, dx = dy8 w8, dw = dy8^T x8, where x8 are eight bits of x over their scale. */
TEST(a_product_and_its_gradients_are_those_of_what_was_rounded)
{
    enum { N = 5, LAYER = 1 };
    struct float8_rig f;
    open_rig(&f, "tensorwise", F32);
    struct model *m = &f.r.m;
    size_t D = (size_t)m->shape.D, F = 2 * (size_t)m->shape.F;
    float *x = numbers(1, N * D), *dy = numbers(2, N * F), scales[3];
    struct float8_scale kept[PRODUCTS] = {0};
    float y[N * 64], dx[N * 16], want_y[N * 64], want_dx[N * 16], *want_dw = heap(F * D * 4);
    memset(f.r.gradients, 0, m->layout.elements * sizeof(float));
    CHECK_STATUS(OK, model_open(m, PARAM_attn_norm, LAYER, USE_WEIGHTS | USE_GRADIENTS));
    const float *w = model_weight(m, PARAM_mlp_gate, LAYER);
    float *x8 = values(x, N * D, E4M3, &scales[0], m->on);
    float *w8 = values(w, F * D, E4M3, &scales[1], m->on);
    float *dy8 = values(dy, N * F, E5M2, &scales[2], m->on);
    struct linear plain = {.N = N, .D = (int)D, .F = (int)F, .dtype = F32};
    linear_forward(m->ops, &plain, &(struct linear_fwd){.x_ND = x8, .w_FD = w8, .y_NF = want_y},
                   m->on);
    linear_backward_input(m->ops, &plain,
                          &(struct linear_bwd_input){.dy_NF = dy8, .w_FD = w8, .dx_ND = want_dx},
                          m->on);
    linear_backward_weight(m->ops, &plain,
                           &(struct linear_bwd_weight){.dy_NF = dy8, .x_ND = x8, .dw_FD = want_dw},
                           m->on);
    struct product_call call = {PRODUCT_mlp_gate, LAYER, N, kept, .found = false};
    CHECK_STATUS(OK, product_forward(m, &call, x, y, NULL, false));
    CHECK_STATUS(OK, product_backward(m, &call, dy, x, dx));
    CHECK(kept[PRODUCT_mlp_gate].scale == scales[0]);
    CHECK(kept[PRODUCT_mlp_gate].inverse == 1 / scales[0]);
    check_close(y, want_y, N * F);
    check_close(dx, want_dx, N * D);
    check_close(model_gradient(m, PARAM_mlp_gate, LAYER), want_dw, F * D);
    free(x), free(dy), free(x8), free(w8), free(dy8), free(want_dw);
    close_rig(&f);
}

/* Steps of gradients by a recipe, and what the scales are then. */
static void gradients_of(const char *recipe, enum recompute recompute, float *gradients,
                         float *scales)
{
    struct float8_rig f;
    open_rig(&f, recipe, BF16);
    f.r.m.recompute = recompute;
    for (int step = 0; step < 3; step++) {
        float8_begin(&f.state);
        rig_train(&f.r);
        float8_gather(&f.state), float8_learn(&f.state);
    }
    memcpy(gradients, f.r.gradients, f.r.m.layout.elements * sizeof *gradients);
    memcpy(scales, f.state.scales, float8_seen(&f.state) * sizeof *scales);
    close_rig(&f);
}

TEST(recomputing_changes_neither_gradients_nor_what_is_learnt)
{
    enum { MOST = 1 << 15, SCALES = 64 };
    float *one = heap(MOST * sizeof *one), *other = heap(MOST * sizeof *other);
    for (int delayed = 0; delayed < 2; delayed++)
        for (enum recompute r = RECOMPUTE_SELECTIVE; r < RECOMPUTE_COUNT; r++) {
            float scales[2][SCALES] = {0};
            const char *recipe = delayed ? "delayed" : "tensorwise";
            gradients_of(recipe, RECOMPUTE_NONE, one, scales[0]);
            gradients_of(recipe, r, other, scales[1]);
            CHECK(!memcmp(one, other, MOST * sizeof *one));
            CHECK(!memcmp(scales[0], scales[1], sizeof scales[0]));
            for (int i = 0; i < 36 && delayed; i++) CHECK(scales[0][i] > 0);
        }
    free(one), free(other);
}

/* The cosine of the angle between gradients with eight bits and without. */
static double cosine(const char *recipe, enum dtype dtype)
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

TEST(gradients_of_eight_bits_point_where_the_others_do)
{
    for (enum dtype dtype = F32; dtype <= BF16; dtype++)
        for (int delayed = 0; delayed < 2; delayed++) {
            double c = cosine(delayed ? "delayed" : "tensorwise", dtype);
            if (!(c > 0.95 && c < 0.999999)) fail_msg("cosine %.6f", c);
        }
}

TEST(evaluating_rounds_too_and_keeps_no_scale)
{
    struct float8_rig f;
    open_rig(&f, "tensorwise", BF16);
    double with = rig_loss(&f.r);
    f.r.m.float8 = NULL;
    double without = rig_loss(&f.r);
    CHECK(fabs(with - without) > 1e-6 && fabs(with - without) < 0.1 * without);
    close_rig(&f);
}

TEST(what_is_filtered_has_the_bits_of_no_rounding)
{
    struct float8_rig f;
    open_rig(&f, "tensorwise", BF16);
    memset(f.state.chosen, 0, (size_t)f.state.blocks * PRODUCTS * sizeof *f.state.chosen);
    double with = rig_loss(&f.r);
    f.r.m.float8 = NULL;
    CHECK(with == rig_loss(&f.r));
    close_rig(&f);
}

TEST(a_number_that_is_none_reaches_the_loss)
{
    struct float8_rig f;
    open_rig(&f, "delayed", F32);
    rig_train(&f.r);
    float8_gather(&f.state), float8_learn(&f.state), float8_begin(&f.state);
    f.r.weights[layout_find(&f.r.m.layout, PARAM_mlp_norm, 1)->offset] = NAN;
    rig_train(&f.r);
    CHECK(isnan(f.r.loss[0]));
    close_rig(&f);
}
