// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/rope.h"

static void compare(struct rope r)
{
    size_t n = (size_t)r.B * (size_t)r.T * r.stride, J = (size_t)r.K / 2;
    size_t angles = (size_t)(r.first + r.T) * J;
    float *c = rig_zeros(angles, F32), *s = rig_zeros(angles, F32);
    rope_table(r.first + r.T, &(struct rope_angles){r.K, 10000, NULL}, c, s);
    void *before = rig_random(1, n, r.dtype), *x[2];
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        x[i] = rig_copy(before, n, r.dtype);
        struct rope_io io = {x[i], c, s};
        RIG_RUN(rope(ops, &r, &io, rig_queue()));
    }
    RIG_CLOSE(x[1], x[0], n, r.dtype);
    r.inverse = !r.inverse; /* there and back */
    struct rope_io io = {x[0], c, s};
    CHECK_STATUS(OK, rope(&ops_cpu_reference, &r, &io, rig_queue()));
    RIG_CLOSE(x[0], before, n, r.dtype);
    free(before), free(x[0]), free(x[1]), free(c), free(s);
}

OPS_TEST(rope_agrees_with_the_reference_and_inverse_restores_the_input)
{
    for (int variant = 0; variant < 4; variant++) {
        enum dtype dtype = variant & 1 ? BF16 : F32;
        bool inverse = variant & 2;
        compare((struct rope){1, 1, 1, 2, 0, 2, dtype, .inverse = inverse});
        compare((struct rope){2, 5, 3, 6, 0, 31, dtype, .inverse = inverse});
        compare((struct rope){1, 3, 2, 130, 7, 300, dtype, .inverse = inverse});
        compare((struct rope){3, 11, 5, 32, 2, 168, dtype, .inverse = inverse});
        compare((struct rope){1, 2, 40, 128, 0, 40 * 128, dtype, .inverse = inverse});
        compare((struct rope){2, 9, 9, 64, 0, 12 * 64, dtype, .inverse = inverse});
        compare((struct rope){1, 2, 3, 1024, 0, 3 * 1024 + 1, dtype, .inverse = inverse});
    }
}

TEST(rope_depends_only_on_relative_position)
{
    enum { T = 40, K = 16 };
    float c[T * K / 2], s[T * K / 2], dots[2];
    rope_table(T, &(struct rope_angles){K, 500000, NULL}, c, s);
    for (int shift = 0; shift < 2; shift++) {
        float *q = rig_random(1, K, F32), *k = rig_random(2, K, F32);
        struct rope at = {1, 1, 1, K, 9 + 11 * shift, K, .dtype = F32}, back = at;
        back.first -= 5;
        CHECK_STATUS(OK, rope(&ops_cpu_reference, &at, &(struct rope_io){q, c, s}, rig_queue()));
        CHECK_STATUS(OK, rope(&ops_cpu_reference, &back, &(struct rope_io){k, c, s}, rig_queue()));
        dots[shift] = (float)rig_dot(q, k, K);
        free(q), free(k);
    }
    CHECK_NEAR((double)dots[0], (double)dots[1], 1e-5);
}

TEST(rope_scaling_keeps_short_wavelengths_and_stretches_long_ones)
{
    enum { K = 64, J = K / 2 };
    struct rope_scaling llama3 = {8, 1, 4, 8192};
    float plain_cos[2 * J], plain_sin[2 * J], cos_[2 * J], sin_[2 * J];
    rope_table(2, &(struct rope_angles){K, 500000, NULL}, plain_cos, plain_sin);
    rope_table(2, &(struct rope_angles){K, 500000, &llama3}, cos_, sin_);
    CHECK(sin_[J] == plain_sin[J]); /* wavelength 2 pi */
    CHECK_NEAR((double)(plain_sin[2 * J - 1] / sin_[2 * J - 1]), 8, 1e-5);
    for (int j = 0; j < J; j++)
        CHECK(sin_[J + j] <= plain_sin[J + j] && sin_[J + j] * 8.001f >= plain_sin[J + j]);
}

struct rope_loss {
    struct rope r;
    float *x, *y, *weight, c[12], s[12];
};

static double loss(void *context)
{
    struct rope_loss *k = context;
    memcpy(k->y, k->x, 24 * sizeof *k->y);
    struct rope_io io = {k->y, k->c, k->s};
    CHECK_STATUS(OK, rope(&ops_cpu_reference, &k->r, &io, rig_queue()));
    return rig_dot(k->y, k->weight, 24);
}

TEST(rope_gradient_matches_finite_differences)
{
    struct rope_loss k = {.r = {1, 2, 2, 6, 0, 12, F32, false}};
    rope_table(2, &(struct rope_angles){6, 100, NULL}, k.c, k.s);
    k.x = rig_random(1, 24, F32), k.y = rig_zeros(24, F32), k.weight = rig_random(2, 24, F32);
    float *dx = rig_copy(k.weight, 24, F32);
    struct rope inverse = k.r;
    inverse.inverse = true;
    CHECK_STATUS(OK,
                 rope(&ops_cpu_reference, &inverse, &(struct rope_io){dx, k.c, k.s}, rig_queue()));
    rig_check_gradient("x", k.x, 24, dx, loss, &k);
    free(k.x), free(k.y), free(k.weight), free(dx);
}

TEST(rope_rejects_odd_head_sizes_and_short_strides)
{
    struct rope odd = {1, 1, 1, 3, 0, 3, .dtype = F32}, close = {1, 1, 2, 4, 0, 7, .dtype = F32};
    CHECK_STATUS(SHAPE, rope(&ops_cpu_reference, &odd, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, rope(&ops_cpu_reference, &close, NULL, rig_queue()));
}
