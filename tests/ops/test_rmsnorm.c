// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/rmsnorm.h"

static void compare(int N, int D, enum dtype dtype, bool accumulate)
{
    struct rmsnorm r = {N, D, 1e-5f, dtype, accumulate, false};
    size_t n = (size_t)N * (size_t)D;
    void *x = rig_random(1, n, dtype), *w = rig_random(2, (size_t)D, dtype), *y[2], *dx[2];
    void *dy = rig_random(3, n, dtype);
    float *rstd[2], *dw[2];
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        y[i] = rig_zeros(n, dtype), dx[i] = rig_random(4, n, dtype);
        rstd[i] = rig_zeros((size_t)N, F32), dw[i] = rig_random(5, (size_t)D, F32);
        struct rmsnorm_fwd forward = {x, w, y[i], rstd[i], NULL};
        struct rmsnorm_bwd backward = {dy, x, w, rstd[i], dx[i], dw[i]};
        RIG_RUN(rmsnorm_forward(ops, &r, &forward, rig_queue()));
        RIG_RUN(rmsnorm_backward(ops, &r, &backward, rig_queue()));
    }
    RIG_CLOSE(y[1], y[0], n, dtype);
    RIG_CLOSE(dx[1], dx[0], n, dtype);
    RIG_CLOSE(rstd[1], rstd[0], (size_t)N, F32);
    /* the last bit of rstd may flip the rounding of x * rstd to bf16 */
    rig_check_close("dw", dw[1], dw[0], (size_t)D, F32, dtype == F32 ? 1e-5 : 1e-3);
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(rstd[i]), free(dw[i]);
    free(x), free(w), free(dy);
}

OPS_TEST(rmsnorm_agrees_with_the_reference_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1}, {1, 33}, {130, 7}, {65, 768}, {600, 16}, {3, 2051}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 4; variant++)
            compare(sizes[i][0], sizes[i][1], variant & 1 ? BF16 : F32, variant & 2);
}

TEST(rmsnorm_output_has_the_weight_as_its_rms)
{
    enum { D = 64 };
    float *x = rig_random(1, D, F32), y[D], w[D], rstd, squares = 0;
    for (int d = 0; d < D; d++) w[d] = 2;
    struct rmsnorm r = {1, D, 0, F32, false, false};
    struct rmsnorm_fwd io = {x, w, y, &rstd, NULL};
    CHECK_STATUS(OK, rmsnorm_forward(&ops_cpu_reference, &r, &io, rig_queue()));
    for (int d = 0; d < D; d++) squares += y[d] * y[d];
    CHECK_NEAR((double)sqrtf(squares / D), 2, 1e-6);
    free(x);
}

struct rmsnorm_loss {
    struct rmsnorm r;
    float *x, *w, *y, *weight, rstd[3];
};

static double loss(void *context)
{
    struct rmsnorm_loss *c = context;
    struct rmsnorm_fwd io = {c->x, c->w, c->y, c->rstd, NULL};
    CHECK_STATUS(OK, rmsnorm_forward(&ops_cpu_reference, &c->r, &io, rig_queue()));
    return rig_dot(c->y, c->weight, 21);
}

TEST(rmsnorm_gradients_match_finite_differences)
{
    struct rmsnorm_loss c = {.r = {3, 7, 1e-5f, F32, false, false}};
    float dx[21], dw[7] = {0};
    c.x = rig_random(1, 21, F32), c.w = rig_random(2, 7, F32);
    c.y = rig_zeros(21, F32), c.weight = rig_random(3, 21, F32);
    loss(&c);
    struct rmsnorm_bwd io = {c.weight, c.x, c.w, c.rstd, dx, dw};
    CHECK_STATUS(OK, rmsnorm_backward(&ops_cpu_reference, &c.r, &io, rig_queue()));
    rig_check_gradient("x", c.x, 21, dx, loss, &c);
    rig_check_gradient("w", c.w, 7, dw, loss, &c);
    free(c.x), free(c.w), free(c.y), free(c.weight);
}

TEST(rmsnorm_rejects_empty_sizes_and_a_negative_eps)
{
    struct rmsnorm r = {.N = 1}, negative = {.N = 1, .D = 1, .eps = -1};
    CHECK_STATUS(SHAPE, rmsnorm_forward(&ops_cpu_reference, &r, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, rmsnorm_backward(&ops_cpu_reference, &negative, NULL, rig_queue()));
    CHECK_MESSAGE("eps -1");
}
