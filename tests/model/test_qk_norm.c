// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "model/qk_norm.h"
#include "model/unit.h"

/* Adds up the sums of two ranks with the same heads. */
static enum status double_sums(const struct parallel_plan *p, enum boundary at, enum direction way,
                               struct crossing *x, struct queue *queue)
{
    float *sums = x->x;
    (void)p, (void)way, (void)queue;
    CHECK(at == QK_NORM && x->columns == 2 && x->dtype == F32);
    for (int i = 0; i < 2 * x->rows; i++) sums[i] *= 2;
    return STATUS_OK;
}

TEST(qk_norm_of_two_ranks_with_the_same_heads_has_the_bits_of_one)
{
    static const struct parallel_plan two = {.parts = 2, .cross = double_sums};
    enum { N = 5 };
    struct model_shape s = rig_shape();
    struct rig r;
    s.qk_norm = s.post_norm = true;
    rig_open(&r, &s, F32, 1, N);
    CHECK_STATUS(OK, arena_init(&r.step, 1 << 12, NULL));
    CHECK_STATUS(OK, unit_open(&r.m, PARAM_attn_q, 0, USE_WEIGHTS | USE_GRADIENTS));
    size_t P = (size_t)(s.G * s.K), Q = (size_t)(s.H * s.K), C = Q + 2 * P, n = N * C;
    float *x = heap(n * sizeof *x), *y[2], *d[2], rstd[2][2 * N], dw[2];
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(1, RNG_TEST, 0, i);
    for (int i = 0; i < 2; i++) {
        float *gradient = unit_gradient(&r.m, PARAM_wide_k_norm, 0);
        if (i) r.m.plan = &two;
        y[i] = heap(n * sizeof *x), d[i] = heap(n * sizeof *x), *gradient = 0;
        for (size_t j = 0; j < n; j++) d[i][j] = (float)rng_normal(2, RNG_TEST, 0, j);
        struct qk_norm norm = {0, N, {x, x + Q}, {y[i], y[i] + Q}, {C, C}, rstd[i]};
        CHECK_STATUS(OK, qk_norm_forward(&r.m, &norm));
        norm.y[0] = d[i], norm.y[1] = d[i] + Q;
        CHECK_STATUS(OK, qk_norm_backward(&r.m, &norm, &r.step));
        dw[i] = *gradient;
    }
    CHECK(!memcmp(y[0], y[1], n * sizeof *x) && !memcmp(d[0], d[1], n * sizeof *x));
    CHECK(!memcmp(rstd[0], rstd[1], sizeof rstd[0]) && !memcmp(&dw[0], &dw[1], sizeof dw[0]));
    double squares = 0; /* of all queries of the first token, whose norm is sqrt(Q) */
    const float *w = unit_weight(&r.m, PARAM_wide_q_norm, 0);
    for (size_t i = 0; i < Q; i++) squares += pow((double)(y[0][i] / w[i]), 2);
    CHECK_NEAR(squares / (double)Q, 1, 1e-4);
    for (int i = 0; i < 2; i++) free(y[i]), free(d[i]);
    free(x);
    rig_close(&r);
}
