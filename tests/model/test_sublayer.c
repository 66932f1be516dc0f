// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/sublayer.h"
#include "model/unit.h"

enum { N = 5 };

/* The output projection of attention in the first block, its input, and a stream. */
struct sample {
    struct rig r;
    struct activations a;
    struct block_call k;
    size_t D, Q;
    float y[N * 16], x[N * 16], out[N * 16];
};

static void sample_open(struct sample *s, const struct model_shape *shape)
{
    *s = (struct sample){.D = (size_t)shape->D, .Q = (size_t)(shape->H * shape->K)};
    rig_open(&s->r, shape, F32, 1, N);
    CHECK_STATUS(OK, arena_init(&s->r.step, 1 << 16, NULL));
    activations_alloc_shared(&s->r.m, N, RECOMPUTE_FULL, &s->a, &s->r.step);
    s->k = (struct block_call){&s->r.m, 0, N, &s->a};
    CHECK_STATUS(OK, unit_open(&s->r.m, PARAM_attn_out, 0, USE_WEIGHTS | USE_GRADIENTS));
    memset(s->r.gradients, 0, s->r.m.layout.elements * sizeof(float));
    for (uint64_t i = 0; i < N * 16; i++) {
        s->y[i] = (float)rng_normal(1, RNG_TEST, 0, i);
        s->x[i] = (float)rng_normal(2, RNG_TEST, 0, i);
    }
}

/* Row n of y w^T, with its bias if the model has one. */
static void projected(const struct sample *s, size_t n, double *row)
{
    const float *w = unit_weight(&s->r.m, PARAM_attn_out, 0);
    const float *b = s->r.m.shape.out_bias ? unit_weight(&s->r.m, PARAM_out_bias, 0) : NULL;
    for (size_t d = 0; d < s->D; d++) {
        row[d] = b ? (double)b[d] : 0;
        for (size_t q = 0; q < s->Q; q++)
            row[d] += (double)s->y[n * s->Q + q] * (double)w[d * s->Q + q];
    }
}

static void add(struct sample *s, bool in_place)
{
    struct sublayer_residual r = {in_place ? s->out : s->x, s->out, in_place};
    if (in_place) memcpy(s->out, s->x, sizeof s->x);
    CHECK_STATUS(OK, sublayer_add(&s->k, sublayer_matmul(&s->k, MATMUL_attn_out), s->y, r));
}

TEST(sublayer_adds_its_scaled_projection_with_a_bias_to_the_stream)
{
    const double scales[] = {1, 0.5};
    for (int i = 0; i < 4; i++) {
        struct model_shape shape = rig_shape();
        struct sample s;
        double row[16];
        shape.qkv_bias = shape.out_bias = true, shape.residual_multiplier = i / 2 ? scales[1] : 0;
        sample_open(&s, &shape);
        add(&s, i % 2);
        for (size_t n = 0; n < N; n++) {
            projected(&s, n, row);
            for (size_t d = 0; d < s.D; d++)
                CHECK_NEAR((double)s.out[n * s.D + d],
                           (double)s.x[n * s.D + d] + scales[i / 2] * row[d], 1e-5);
        }
        rig_close(&s.r);
    }
}

TEST(sublayer_with_post_norm_reads_the_stream_itself_and_adds_a_norm)
{
    struct model_shape shape = rig_shape();
    struct sample s;
    double row[16];
    shape.qk_norm = shape.post_norm = true;
    sample_open(&s, &shape);
    CHECK_STATUS(OK, sublayer_norm(&s.k, PARAM_attn_norm, s.x, s.a.norm1_ND, s.a.rstd1_S));
    CHECK(!memcmp(s.a.norm1_ND, s.x, N * s.D * sizeof(float)));
    add(&s, false);
    const float *w = unit_weight(&s.r.m, PARAM_post_attn_norm, 0);
    for (size_t n = 0; n < N; n++) {
        double squares = 0;
        projected(&s, n, row);
        for (size_t d = 0; d < s.D; d++) squares += row[d] * row[d];
        double rstd = 1 / sqrt(squares / (double)s.D + shape.norm_eps);
        for (size_t d = 0; d < s.D; d++)
            CHECK_NEAR((double)s.out[n * s.D + d],
                       (double)s.x[n * s.D + d] + (double)w[d] * row[d] * rstd, 1e-5);
    }
    rig_close(&s.r);
}

TEST(gradient_of_what_a_sublayer_adds_is_scaled_and_summed_for_the_bias)
{
    struct model_shape shape = rig_shape();
    struct sample s;
    float dx[N * 16];
    void *added;
    shape.qkv_bias = shape.out_bias = true, shape.residual_multiplier = 0.25;
    sample_open(&s, &shape);
    memcpy(dx, s.x, sizeof dx);
    struct matmul_call call = sublayer_matmul(&s.k, MATMUL_attn_out);
    CHECK_STATUS(OK, sublayer_gather_gradient(&s.k, &call, dx, &added));
    CHECK(!call.dy_quantized);
    CHECK(added != dx && !memcmp(dx, s.x, sizeof dx)); /* the connection's gradient stays */
    const float *db = unit_gradient(&s.r.m, PARAM_out_bias, 0);
    for (size_t d = 0; d < s.D; d++) {
        double sum = 0;
        for (size_t n = 0; n < N; n++) {
            CHECK(((float *)added)[n * s.D + d] == 0.25f * dx[n * s.D + d]);
            sum += 0.25 * (double)dx[n * s.D + d];
        }
        CHECK_NEAR((double)db[d], sum, 1e-6);
    }
    rig_close(&s.r);
}
