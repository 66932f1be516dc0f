// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/swiglu.h"

OPS_TEST(swiglu_agrees_with_the_reference_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1}, {3, 257}, {17, 64}, {2, 1000}};
    for (size_t k = 0; k < 8; k++) {
        enum dtype dtype = k & 1 ? BF16 : F32;
        struct swiglu s = {sizes[k / 2][0], sizes[k / 2][1], dtype};
        size_t n = (size_t)s.N * (size_t)s.F;
        void *x = rig_random(1, 2 * n, dtype), *dy = rig_random(2, n, dtype), *y[2], *dx[2];
        for (int i = 0; i < 2; i++) {
            const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
            y[i] = rig_zeros(n, dtype), dx[i] = rig_copy(x, 2 * n, dtype);
            struct swiglu_fwd forward = {x, y[i], NULL};
            struct swiglu_bwd in_place = {dx[i], dy, dx[i], NULL};
            RIG_RUN(swiglu_forward(ops, &s, &forward, rig_queue()));
            RIG_RUN(swiglu_backward(ops, &s, &in_place, rig_queue()));
        }
        RIG_CLOSE(y[1], y[0], n, dtype);
        RIG_CLOSE(dx[1], dx[0], 2 * n, dtype);
        for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]);
        free(x), free(dy);
    }
}

OPS_TEST(swiglu_of_large_gates_is_up_times_gate_or_nothing)
{
    float x[4] = {100, -100, 3, 3}, y[2];
    struct swiglu s = {1, 2, F32};
    for (int i = 0; i < 2; i++) {
        struct swiglu_fwd io = {x, y, NULL};
        RIG_RUN(swiglu_forward(i ? rig_fast() : &ops_cpu_reference, &s, &io, rig_queue()));
        CHECK_NEAR((double)y[0], 300, 1e-6);
        CHECK(fabsf(y[1]) < 1e-30f);
    }
}

struct swiglu_loss {
    struct swiglu s;
    float *x, *y, *weight;
};

static double loss(void *context)
{
    struct swiglu_loss *c = context;
    struct swiglu_fwd io = {c->x, c->y, NULL};
    CHECK_STATUS(OK, swiglu_forward(&ops_cpu_reference, &c->s, &io, rig_queue()));
    return rig_dot(c->y, c->weight, 15);
}

TEST(swiglu_gradient_is_the_difference)
{
    struct swiglu_loss c = {.s = {3, 5, F32}};
    float dx[30];
    c.x = rig_random(1, 30, F32), c.y = rig_zeros(15, F32), c.weight = rig_random(2, 15, F32);
    struct swiglu_bwd io = {c.x, c.weight, dx, NULL};
    CHECK_STATUS(OK, swiglu_backward(&ops_cpu_reference, &c.s, &io, rig_queue()));
    rig_check_gradient("gate_up", c.x, 30, dx, loss, &c);
    free(c.x), free(c.y), free(c.weight);
}

TEST(swiglu_refuses_empty_sizes)
{
    struct swiglu s = {1, 0, F32};
    CHECK_STATUS(SHAPE, swiglu_forward(&ops_cpu_reference, &s, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, swiglu_backward(&ops_cpu_reference, &s, NULL, rig_queue()));
}
