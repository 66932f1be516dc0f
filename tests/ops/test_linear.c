// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/float8.h"
#include "ops/linear.h"

#include <omp.h>

static void *operand(uint64_t seed, size_t n, const struct linear *l)
{
    return rig_random(seed, n, linear_operand(l));
}

static void compare(struct linear l)
{
    size_t x_n = (size_t)l.N * (size_t)l.D, w_n = (size_t)l.F * (size_t)l.D;
    size_t y_n = (size_t)l.N * (size_t)l.F;
    struct float8_scale one = {2, 0.5f}, other = {1 / 0.74f, 0.74f};
    void *x = operand(1, x_n, &l), *w = operand(2, w_n, &l), *dy = operand(3, y_n, &l), *y[2],
         *dx[2], *dw[2], *add = rig_random(4, y_n, l.dtype);
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        bool apart = (l.N + i) % 2; /* add_NF is another buffer than y_NF */
        y[i] = rig_random(apart ? 7 : 4, y_n, l.dtype), dx[i] = rig_random(5, x_n, l.dtype);
        dw[i] = rig_random(6, w_n, F32);
        struct linear_fwd forward = {x, w, y[i], &one, &other, apart ? add : NULL};
        struct linear_bwd_input input = {dy, w, dx[i], &one, &other};
        struct linear_bwd_weight weight = {dy, x, dw[i], &other, &one};
        RIG_RUN(linear_forward(ops, &l, &forward, rig_queue()));
        RIG_RUN(linear_backward_input(ops, &l, &input, rig_queue()));
        RIG_RUN(linear_backward_weight(ops, &l, &weight, rig_queue()));
    }
    RIG_CLOSE(y[1], y[0], y_n, l.dtype);
    RIG_CLOSE(dx[1], dx[0], x_n, l.dtype);
    RIG_CLOSE(dw[1], dw[0], w_n, F32);
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(dw[i]);
    free(x), free(w), free(dy), free(add);
}

OPS_TEST(linear_agrees_with_the_reference_at_odd_and_real_sizes)
{
    static const int sizes[][3] = {{1, 1, 1},    {1, 7, 3},     {5, 1, 9},     {3, 33, 17},
                                   {67, 65, 31}, {128, 96, 64}, {64, 256, 160}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 4; variant++)
            compare((struct linear){.N = sizes[i][0],
                                    .D = sizes[i][1],
                                    .F = sizes[i][2],
                                    .dtype = variant & 1 ? BF16 : F32,
                                    .accumulate = variant & 2});
}

OPS_TEST(linear_of_fp8_operands_scales_the_accumulators)
{
    static const int sizes[][3] = {{3, 33, 17}, {67, 65, 31}, {128, 96, 64}, {9, 33000, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 4; variant++)
            compare((struct linear){.N = sizes[i][0],
                                    .D = sizes[i][1],
                                    .F = sizes[i][2],
                                    .dtype = variant & 1 ? BF16 : F32,
                                    .accumulate = variant & 2,
                                    .float8 = true});
}

/* Integers, so that accumulation is exact and only the final rounding remains. */
OPS_TEST(linear_scales_before_it_accumulates)
{
    enum { N = 40, D = 64, F = 48 };
    bf16 x[N * D], w[F * D], y[N * F];
    for (int i = 0; i < N * D; i++) x[i] = bf16_from_f32((float)(i % 7 - 3));
    for (int i = 0; i < F * D; i++) w[i] = bf16_from_f32((float)(i % 5 - 2));
    struct linear l = {.N = N, .D = D, .F = F, .dtype = BF16, .accumulate = true, .float8 = true};
    struct float8_scale four = {4, 0.25f}, two = {2, 0.5f};
    struct linear_fwd io = {x, w, y, &four, &two, NULL};
    for (int i = 0; i < N * F; i++) y[i] = bf16_from_f32(64);
    RIG_RUN(linear_forward(rig_fast(), &l, &io, rig_queue()));
    for (int i = 0; i < N * F; i++) y[i] = bf16_from_f32(64);
    CHECK_STATUS(OK, linear_forward(rig_fast(), &l, &io, rig_queue()));
    for (int n = 0; n < N; n++)
        for (int f = 0; f < F; f++) {
            float sum = 0;
            for (int d = 0; d < D; d++)
                sum += bf16_to_f32(x[n * D + d]) * bf16_to_f32(w[f * D + d]);
            CHECK(y[n * F + f] == bf16_from_f32(64 + 0.125f * sum));
        }
}

struct linear_loss {
    struct linear l;
    float *x, *w, *y, *weight;
};

static double loss(void *context)
{
    struct linear_loss *c = context;
    struct linear_fwd io = {.x_ND = c->x, .w_FD = c->w, .y_NF = c->y};
    CHECK_STATUS(OK, linear_forward(&ops_cpu_reference, &c->l, &io, rig_queue()));
    return rig_dot(c->y, c->weight, (size_t)c->l.N * (size_t)c->l.F);
}

TEST(linear_gradients_match_finite_differences)
{
    struct linear_loss c = {.l = {.N = 3, .D = 5, .F = 4, .dtype = F32}};
    float dx[15], dw[20];
    c.x = rig_random(1, 15, F32), c.w = rig_random(2, 20, F32);
    c.y = rig_zeros(12, F32), c.weight = rig_random(3, 12, F32);
    struct linear_bwd_input input = {.dy_NF = c.weight, .w_FD = c.w, .dx_ND = dx};
    struct linear_bwd_weight weight = {.dy_NF = c.weight, .x_ND = c.x, .dw_FD = dw};
    CHECK_STATUS(OK, linear_backward_input(&ops_cpu_reference, &c.l, &input, rig_queue()));
    CHECK_STATUS(OK, linear_backward_weight(&ops_cpu_reference, &c.l, &weight, rig_queue()));
    rig_check_gradient("x", c.x, 15, dx, loss, &c);
    rig_check_gradient("w", c.w, 20, dw, loss, &c);
    free(c.x), free(c.w), free(c.y), free(c.weight);
}

TEST(linear_rejects_empty_sizes)
{
    struct linear l = {.N = 0, .D = 1, .F = 1};
    CHECK_STATUS(SHAPE, linear_forward(&ops_cpu_reference, &l, NULL, rig_queue()));
    CHECK_MESSAGE("N 0");
    CHECK_STATUS(SHAPE, linear_backward_input(&ops_cpu_reference, &l, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, linear_backward_weight(&ops_cpu_reference, &l, NULL, rig_queue()));
}

/* y, dx and dw of one linear layer on a queue with that many threads, one after the other. */
static float *run_on_threads(const struct linear *l, int threads, size_t *count)
{
    size_t x_n = (size_t)l->N * (size_t)l->D, w_n = (size_t)l->F * (size_t)l->D;
    size_t y_n = (size_t)l->N * (size_t)l->F;
    float *x = rig_random(1, x_n, F32), *w = rig_random(2, w_n, F32), *dy = rig_random(3, y_n, F32);
    float *out = rig_random(4, *count = y_n + x_n + w_n, F32);
    struct linear_fwd forward = {.x_ND = x, .w_FD = w, .y_NF = out};
    struct linear_bwd_input input = {.dy_NF = dy, .w_FD = w, .dx_ND = out + y_n};
    struct linear_bwd_weight weight = {.dy_NF = dy, .x_ND = x, .dw_FD = out + y_n + x_n};
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, threads, 24 << 20));
    queue->thread_invariant = true;
    CHECK_STATUS(OK, linear_forward(rig_fast(), l, &forward, queue));
    CHECK_STATUS(OK, linear_backward_input(rig_fast(), l, &input, queue));
    CHECK_STATUS(OK, linear_backward_weight(rig_fast(), l, &weight, queue));
    cpu_queue_close(queue);
    free(x), free(w), free(dy);
    return out;
}

/* oneDNN would split the sums over 2100 tokens among the threads. */
CPU_ISAS_TEST(thread_invariant_queue_gives_f32_linears_the_same_bits_on_any_number_of_threads)
{
    static const int sizes[][3] = {{2100, 40, 48}, {70, 33, 130}, {300, 384, 65}},
                     threads[] = {2, 3, 5, 16, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const struct linear l = {.N = sizes[i][0],
                                     .D = sizes[i][1],
                                     .F = sizes[i][2],
                                     .dtype = F32,
                                     .accumulate = accumulate};
            size_t n;
            float *want = run_on_threads(&l, 1, &n);
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
                float *got = run_on_threads(&l, threads[t], &n);
                CHECK(!memcmp(got, want, n * sizeof *got));
                free(got);
            }
            free(want);
        }
    omp_set_num_threads(rig_queue()->num_threads); /* for oneDNN in other tests */
}
