// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/bias.h"

OPS_TEST(bias_agrees_with_the_reference_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1},    {1, 33},    {130, 7}, {65, 768},
                                   {600, 16}, {520, 515}, {3, 4104}};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        enum dtype dtype = k & 1 ? BF16 : F32;
        struct bias a = {sizes[k / 2][0], sizes[k / 2][1], dtype};
        size_t F = (size_t)a.F, n = (size_t)a.N * F;
        void *b = rig_random(1, F, dtype), *dy = rig_random(2, n, dtype), *y[2];
        float *db[2];
        for (int i = 0; i < 2; i++) {
            const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
            y[i] = rig_random(3, n, dtype), db[i] = rig_random(4, F, F32);
            RIG_RUN(bias_forward(ops, &a, &(struct bias_fwd){b, y[i]}, rig_queue()));
            RIG_RUN(bias_backward(ops, &a, &(struct bias_bwd){dy, db[i]}, rig_queue()));
        }
        CHECK(!memcmp(y[0], y[1], n * dtype_bytes(dtype)));
        rig_check_close("db", db[1], db[0], F, F32, 1e-5);
        for (int i = 0; i < 2; i++) free(y[i]), free(db[i]);
        free(b), free(dy);
    }
}

struct bias_loss {
    struct bias a;
    const float *x;
    float *b, *y, *weight;
};

static double loss(void *context)
{
    struct bias_loss *c = context;
    size_t n = (size_t)c->a.N * (size_t)c->a.F;
    memcpy(c->y, c->x, n * sizeof *c->y);
    CHECK_STATUS(
        OK, bias_forward(&ops_cpu_reference, &c->a, &(struct bias_fwd){c->b, c->y}, rig_queue()));
    return rig_dot(c->y, c->weight, n);
}

TEST(bias_gradient_matches_finite_differences)
{
    struct bias_loss c = {.a = {.N = 5, .F = 7}};
    float db[7] = {0}, *x = rig_random(1, 35, F32);
    c.x = x, c.b = rig_random(2, 7, F32), c.y = rig_zeros(35, F32);
    c.weight = rig_random(3, 35, F32);
    struct bias_bwd io = {c.weight, db};
    CHECK_STATUS(OK, bias_backward(&ops_cpu_reference, &c.a, &io, rig_queue()));
    rig_check_gradient("b", c.b, 7, db, loss, &c);
    free(x), free(c.b), free(c.y), free(c.weight);
}

TEST(bias_rejects_empty_sizes)
{
    struct bias a = {.N = 3};
    CHECK_STATUS(SHAPE, bias_forward(&ops_cpu_reference, &a, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, bias_backward(&ops_cpu_reference, &a, NULL, rig_queue()));
    CHECK_MESSAGE("F 0");
}
