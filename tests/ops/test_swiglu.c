// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/float8.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"

OPS_TEST(swiglu_agrees_with_the_reference_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1}, {3, 257}, {17, 64}, {2, 1000}};
    for (size_t k = 0; k < 8; k++) {
        enum dtype dtype = k & 1 ? BF16 : F32;
        struct swiglu s = {sizes[k / 2][0], sizes[k / 2][1], dtype, false};
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

OPS_TEST(swiglu_of_large_gates_saturates)
{
    float x[4] = {100, -100, 3, 3};
    struct swiglu s = {1, 2, F32, false};
    for (int i = 0; i < 2; i++) {
        float y[2] = {NAN, NAN};
        struct swiglu_fwd io = {x, y, NULL};
        RIG_RUN(swiglu_forward(i ? rig_fast() : &ops_cpu_reference, &s, &io, rig_queue()));
        CHECK_NEAR((double)y[0], 300, 1e-6);
        CHECK(fabsf(y[1]) < 1e-30f);
    }
}

/* Results of a feed-forward layer, forward and backward: norm, up and gate, down. */
struct layer {
    size_t y_n, dw_n;
    void *y, *dx;                      /* activations */
    float *dnorm, *dup, *ddown, *rstd; /* of weights; rstd: of the norm */
};

/* Tensors between x and y are all packed, or none. */
static struct layer layer_of(const struct ops *ops, int n, int d, int f, struct linear how,
                             bool packed)
{
    size_t N = (size_t)n, D = (size_t)d, F = (size_t)f;
    enum dtype dtype = how.dtype;
    struct float8_scale s = {2, 0.5f};
    struct layer l = {.y_n = N * D, .dw_n = F * D};
    struct rmsnorm norm = {
        .N = n, .D = d, .eps = 1e-5f, .dtype = dtype, .accumulate = true, .y_packed = packed};
    struct linear up = how, down = how;
    struct swiglu gate = {n, f, dtype, packed};
    up.N = down.N = n, up.D = down.F = d, up.F = 2 * f, down.D = f;
    up.x_packed = up.y_packed = down.x_packed = packed;
    void *x = rig_random(1, N * D, dtype), *w = rig_random(2, D, dtype);
    void *w_up = rig_random(3, 2 * F * D, dtype), *w_down = rig_random(4, F * D, dtype);
    void *dy = rig_random(5, N * D, dtype), *normed = rig_zeros(N * D, dtype);
    void *gate_up = rig_zeros(2 * N * F, dtype), *hidden = rig_zeros(N * F, dtype);
    void *dhidden = rig_zeros(N * F, dtype), *dnormed = rig_zeros(N * D, dtype);
    l.y = rig_random(6, N * D, dtype), l.dx = rig_random(7, N * D, dtype);
    l.dnorm = rig_zeros(D, F32), l.rstd = rig_zeros(N, F32);
    l.dup = rig_zeros(2 * F * D, F32), l.ddown = rig_zeros(F * D, F32);
    struct linear_fwd to_gate = {normed, w_up, gate_up, &s, &s, NULL};
    struct linear_fwd to_y = {hidden, w_down, l.y, &s, &s, NULL};
    struct queue *queue = rig_queue();
    RIG_RUN(rmsnorm_forward(ops, &norm, &(struct rmsnorm_fwd){x, w, normed, l.rstd, NULL}, queue));
    RIG_RUN(linear_forward(ops, &up, &to_gate, queue));
    RIG_RUN(swiglu_forward(ops, &gate, &(struct swiglu_fwd){gate_up, hidden, NULL}, queue));
    down.accumulate = true;
    RIG_RUN(linear_forward(ops, &down, &to_y, queue));
    down.accumulate = false;
    struct linear_bwd_input to_hidden = {dy, w_down, dhidden, &s, &s};
    struct linear_bwd_weight to_down = {dy, hidden, l.ddown, &s, &s};
    struct swiglu_bwd to_gate_up = {gate_up, dhidden, gate_up, NULL};
    struct linear_bwd_input to_norm = {gate_up, w_up, dnormed, &s, &s};
    struct linear_bwd_weight to_up = {gate_up, normed, l.dup, &s, &s};
    struct rmsnorm_bwd to_x = {dnormed, x, w, l.rstd, l.dx, l.dnorm, NULL};
    RIG_RUN(linear_backward_input(ops, &down, &to_hidden, queue));
    RIG_RUN(linear_backward_weight(ops, &down, &to_down, queue));
    RIG_RUN(swiglu_backward(ops, &gate, &to_gate_up, queue));
    RIG_RUN(linear_backward_input(ops, &up, &to_norm, queue));
    RIG_RUN(linear_backward_weight(ops, &up, &to_up, queue));
    RIG_RUN(rmsnorm_backward(ops, &norm, &to_x, queue));
    free(x), free(w), free(w_up), free(w_down), free(dy), free(normed), free(gate_up);
    free(hidden), free(dhidden), free(dnormed);
    return l;
}

OPS_TEST(packed_tensors_of_a_feed_forward_layer_change_no_bit)
{
    static const int sizes[][3] = {{96, 32, 64},  {128, 96, 48},  {33, 64, 32},  {160, 64, 520},
                                   {96, 32, 704}, {96, 1408, 32}, {96, 800, 32}, {7, 32, 32}};
    size_t num_sizes = TEST_SLOWED ? 3 : sizeof sizes / sizeof *sizes;
    if (rig_is_gpu()) num_sizes = 1;
    for (size_t i = 0; i < num_sizes; i++)
        for (int kind = 0; kind < 3; kind++) {
            struct linear how = {.dtype = kind ? BF16 : F32, .float8 = kind == 2};
            struct layer l[2];
            for (int k = 0; k < 2; k++)
                l[k] = layer_of(rig_fast(), sizes[i][0], sizes[i][1], sizes[i][2], how, k);
            CHECK(!memcmp(l[0].y, l[1].y, l[0].y_n * dtype_bytes(how.dtype)));
            CHECK(!memcmp(l[0].dx, l[1].dx, l[0].y_n * dtype_bytes(how.dtype)));
            CHECK(!memcmp(l[0].dup, l[1].dup, 2 * l[0].dw_n * sizeof(float)));
            CHECK(!memcmp(l[0].ddown, l[1].ddown, l[0].dw_n * sizeof(float)));
            CHECK(!memcmp(l[0].dnorm, l[1].dnorm, (size_t)sizes[i][1] * sizeof(float)));
            for (int k = 0; k < 2; k++) {
                free(l[k].y), free(l[k].dx), free(l[k].dup), free(l[k].ddown);
                free(l[k].dnorm), free(l[k].rstd);
            }
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

TEST(swiglu_gradient_matches_finite_differences)
{
    struct swiglu_loss c = {.s = {3, 5, F32, false}};
    float dx[30];
    c.x = rig_random(1, 30, F32), c.y = rig_zeros(15, F32), c.weight = rig_random(2, 15, F32);
    struct swiglu_bwd io = {c.x, c.weight, dx, NULL};
    CHECK_STATUS(OK, swiglu_backward(&ops_cpu_reference, &c.s, &io, rig_queue()));
    rig_check_gradient("gate_up", c.x, 30, dx, loss, &c);
    free(c.x), free(c.y), free(c.weight);
}

TEST(swiglu_rejects_empty_sizes)
{
    struct swiglu s = {.N = 1};
    CHECK_STATUS(SHAPE, swiglu_forward(&ops_cpu_reference, &s, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, swiglu_backward(&ops_cpu_reference, &s, NULL, rig_queue()));
}
