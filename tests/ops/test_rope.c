// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/rope.h"

static void compare(struct rope r)
{
    size_t n = (size_t)r.B * (size_t)r.T * r.stride, J = (size_t)r.J;
    size_t angles = (size_t)(r.first + r.T) * J;
    float *c = rig_zeros(angles, F32), *s = rig_zeros(angles, F32);
    rope_table(r.first + r.T, &(struct rope_angles){r.J, 10000, NULL, 0}, c, s);
    void *before = rig_random(1, n, r.dtype), *x[2];
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        x[i] = rig_copy(before, n, r.dtype);
        struct rope_io io = {x[i], c, s, NULL};
        RIG_RUN(rope(ops, &r, &io, rig_queue()));
    }
    RIG_CLOSE(x[1], x[0], n, r.dtype);
    r.inverse = !r.inverse; /* there and back */
    struct rope_io io = {x[0], c, s, NULL};
    CHECK_STATUS(OK, rope(&ops_cpu_reference, &r, &io, rig_queue()));
    RIG_CLOSE(x[0], before, n, r.dtype);
    free(before), free(x[0]), free(x[1]), free(c), free(s);
}

OPS_TEST(rope_agrees_with_the_reference_and_inverse_restores_the_input)
{
    for (int variant = 0; variant < 4; variant++) {
        enum dtype dtype = variant & 1 ? BF16 : F32;
        bool inverse = variant & 2;
        compare((struct rope){1, 1, 1, 2, 1, 0, 2, dtype, .inverse = inverse});
        compare((struct rope){2, 5, 3, 6, 3, 0, 31, dtype, .inverse = inverse});
        compare((struct rope){1, 3, 2, 130, 65, 7, 300, dtype, .inverse = inverse});
        compare((struct rope){3, 11, 5, 32, 16, 2, 168, dtype, .inverse = inverse});
        compare((struct rope){1, 2, 40, 128, 64, 0, 40 * 128, dtype, .inverse = inverse});
        compare((struct rope){2, 9, 9, 64, 32, 0, 12 * 64, dtype, .inverse = inverse});
        compare((struct rope){1, 2, 3, 1024, 512, 0, 3 * 1024 + 1, dtype, .inverse = inverse});
        /* Of a part of each head. */
        compare((struct rope){2, 5, 3, 7, 1, 0, 31, dtype, .inverse = inverse});
        compare((struct rope){2, 3, 5, 40, 17, 3, 210, dtype, .inverse = inverse});
        compare((struct rope){1, 9, 7, 128, 48, 0, 9 * 128, dtype, .inverse = inverse});
        compare((struct rope){3, 2, 9, 64, 8, 1, 9 * 64, dtype, .inverse = inverse});
        compare((struct rope){1, 2, 3, 1024, 4, 0, 3 * 1024, dtype, .inverse = inverse});
    }
}

/* Each token at a position of its own, as where texts of different lengths are continued: the same
 * as one call per token. */
OPS_TEST(rope_rotates_each_token_to_its_own_position)
{
    enum { TOKENS = 5, H = 3, J = 16, K = 40, STRIDE = H * K + 8, ROWS = 50 };
    static const int32_t positions[TOKENS] = {49, 0, 7, 7, 23};
    float *c = rig_zeros(ROWS * J, F32), *s = rig_zeros(ROWS * J, F32);
    rope_table(ROWS, &(struct rope_angles){J, 10000, NULL, 0}, c, s);
    for (int d = 0; d < DTYPE_COUNT; d++) {
        struct rope all = {TOKENS, 1, H, K, J, 0, STRIDE, .dtype = (enum dtype)d};
        void *x[2] = {rig_random(1, TOKENS * STRIDE, all.dtype)};
        x[1] = rig_copy(x[0], TOKENS * STRIDE, all.dtype);
        struct rope_io io = {x[1], c, s, positions};
        RIG_RUN(rope(rig_fast(), &all, &io, rig_queue()));
        for (size_t n = 0; n < TOKENS; n++) {
            struct rope one = all;
            one.B = 1, one.first = positions[n];
            void *at = (char *)x[0] + n * STRIDE * dtype_bytes(all.dtype);
            struct rope_io alone = {at, c, s, NULL};
            CHECK_STATUS(OK, rope(&ops_cpu_reference, &one, &alone, rig_queue()));
        }
        RIG_CLOSE(x[1], x[0], TOKENS * STRIDE, all.dtype);
        free(x[0]), free(x[1]);
    }
    free(c), free(s);
}

TEST(rope_depends_only_on_relative_position)
{
    enum { T = 40, K = 16 };
    float c[T * K / 2], s[T * K / 2], dots[2];
    rope_table(T, &(struct rope_angles){K / 2, 500000, NULL, 0}, c, s);
    for (int shift = 0; shift < 2; shift++) {
        float *q = rig_random(1, K, F32), *k = rig_random(2, K, F32);
        struct rope at = {1, 1, 1, K, K / 2, 9 + 11 * shift, K, .dtype = F32}, back = at;
        back.first -= 5;
        CHECK_STATUS(OK,
                     rope(&ops_cpu_reference, &at, &(struct rope_io){q, c, s, NULL}, rig_queue()));
        CHECK_STATUS(
            OK, rope(&ops_cpu_reference, &back, &(struct rope_io){k, c, s, NULL}, rig_queue()));
        dots[shift] = (float)rig_dot(q, k, K);
        free(q), free(k);
    }
    CHECK_NEAR((double)dots[0], (double)dots[1], 1e-5);
}

TEST(rope_scaling_keeps_short_wavelengths_and_stretches_long_ones)
{
    enum { K = 64, J = K / 2 };
    struct rope_scaling llama3 = {.factor = 8,
                                  .low_frequency_factor = 1,
                                  .high_frequency_factor = 4,
                                  .original_context = 8192};
    float plain_cos[2 * J], plain_sin[2 * J], cos_[2 * J], sin_[2 * J];
    rope_table(2, &(struct rope_angles){K / 2, 500000, NULL, 0}, plain_cos, plain_sin);
    rope_table(2, &(struct rope_angles){J, 500000, &llama3, 0}, cos_, sin_);
    CHECK(sin_[J] == plain_sin[J]); /* wavelength 2 pi */
    CHECK_NEAR((double)(plain_sin[2 * J - 1] / sin_[2 * J - 1]), 8, 1e-5);
    for (int j = 0; j < J; j++)
        CHECK(sin_[J + j] <= plain_sin[J + j] && sin_[J + j] * 8.001f >= plain_sin[J + j]);
}

static const struct rope_method_case {
    struct rope_scaling scaling;
    int tokens;
    double frequencies[8];
} rope_methods[] = {
    {{.factor = 2.5, .method = ROPE_linear},
     64,
     {0.400000006, 0.183945313, 0.0845896974, 0.0388996974, 0.0178885441, 0.00822628476,
      0.00378296641, 0.00173964747}},
    {{.factor = 3, .original_context = 24, .method = ROPE_dynamic},
     40,
     {1, 0.39306882, 0.154503077, 0.0607303381, 0.0238712002, 0.00938302465, 0.00368817407,
      0.00144970615}},
    {{.factor = 3, .original_context = 24, .method = ROPE_dynamic},
     7,
     {1, 0.459863275, 0.21147424, 0.0972492471, 0.0447213612, 0.0205657128, 0.0094574159,
      0.00434911856}},
    {{.factor = 4, .original_context = 256, .method = ROPE_yarn, .beta_fast = 32, .beta_slow = 1},
     64,
     {1, 0.390883803, 0.14803198, 0.0534870848, 0.0178885441, 0.00514142821, 0.00236435398,
      0.00108727964}},
    {{.factor = 4,
      .original_context = 64,
      .method = ROPE_yarn,
      .beta_fast = 8,
      .beta_slow = 2,
      .attention_factor = 1.25},
     64,
     {1, 0.344897449, 0.10573712, 0.0243123118, 0.0111803403, 0.00514142821, 0.00236435398,
      0.00108727964}},
};

/* The frequencies are those of Transformers 5.23, for theta 500. */
TEST(rope_frequencies_of_each_scaling_are_those_of_transformers)
{
    enum { K = 16, J = K / 2 };
    for (size_t i = 0; i < sizeof rope_methods / sizeof *rope_methods; i++) {
        const struct rope_method_case *is = &rope_methods[i];
        float c[64 * J], s[64 * J];
        double scale = rope_attention_factor(&is->scaling);
        rope_table(is->tokens, &(struct rope_angles){J, 500, &is->scaling, 0}, c, s);
        for (int j = 0; j < J; j++) {
            double f = is->frequencies[j], factor = scale;
            CHECK_NEAR(atan2((double)s[J + j], (double)c[J + j]) / f, 1, 1e-6);
            CHECK_NEAR(hypot((double)s[J + j], (double)c[J + j]), factor, 1e-6);
        }
    }
    CHECK_NEAR(rope_attention_factor(&rope_methods[3].scaling), 1.138629436111989, 1e-15);
    CHECK_NEAR(rope_attention_factor(&rope_methods[4].scaling), 1.25, 0);
    CHECK_NEAR(rope_attention_factor(&rope_methods[0].scaling), 1, 0);
}

/* Those of Transformers 5.24, for theta 500 and half of heads of 16. */
TEST(longrope_divides_frequencies_by_the_factors_of_short_or_long_rows)
{
    enum { J = 4 };
    static const double frequencies[2][J] = {{1, 0.169179395, 0.0298142396, 0.00472870795},
                                             {1, 0.0704914108, 0.00526133645, 0.000591088494}};
    struct rope_scaling scaling = {.factor = 4,
                                   .original_context = 24,
                                   .method = ROPE_longrope,
                                   .num_factors = J,
                                   .short_factors = {1, 1.25, 1.5, 2},
                                   .long_factors = {1, 3, 8.5, 16}};
    for (int i = 0; i < 2; i++) {
        float c[25 * J], s[25 * J];
        rope_table(24 + i, &(struct rope_angles){J, 500, &scaling, 0}, c, s);
        for (int j = 0; j < J; j++) {
            CHECK_NEAR(atan2((double)s[J + j], (double)c[J + j]) / frequencies[i][j], 1, 1e-6);
            CHECK_NEAR(hypot((double)s[J + j], (double)c[J + j]), 1.198419202103781, 1e-6);
        }
    }
    struct rope_scaling other = scaling;
    CHECK(rope_scaling_equals(&other, &scaling));
    CHECK_STATUS(OK, rope_scaling_check(&other));
    other.long_factors[J - 1] = 17;
    CHECK(!rope_scaling_equals(&other, &scaling));
    other = scaling, other.num_factors = J - 1;
    CHECK(!rope_scaling_equals(&other, &scaling));
    other = scaling, other.factor = 1;
    CHECK_NEAR(rope_attention_factor(&other), 1, 0);
    other.attention_factor = 1.5;
    CHECK_NEAR(rope_attention_factor(&other), 1.5, 0);
    other = scaling, other.short_factors[1] = 0;
    CHECK_STATUS(CONFIG, rope_scaling_check(&other));
    CHECK_MESSAGE("model.rope_short_factor[1] = 0, model.rope_long_factor[1] = 3: both");
    other = scaling, other.original_context = 1;
    CHECK_STATUS(CONFIG, rope_scaling_check(&other));
}

TEST(frequencies_of_dynamic_and_longrope_depend_on_the_length_of_a_row)
{
    enum { J = 4 };
    static const int lengths[] = {1, 15, 16, 17, 32, 33};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    for (enum rope_method method = 0; method <= ROPE_longrope; method++)
        for (int i = 0; i < LENGTHS * LENGTHS; i++) {
            int a = lengths[i / LENGTHS], b = lengths[i % LENGTHS];
            struct rope_scaling s = {.factor = 4,
                                     .low_frequency_factor = 1,
                                     .high_frequency_factor = 4,
                                     .original_context = 16,
                                     .method = method,
                                     .beta_fast = 32,
                                     .beta_slow = 1,
                                     .num_factors = J,
                                     .short_factors = {1, 1.25, 1.5, 2},
                                     .long_factors = {1, 3, 8.5, 16}};
            bool same = true;
            for (int j = 0; j < J; j++)
                same = same && rope_frequency(j, &(struct rope_angles){J, 500, &s, a}) ==
                                   rope_frequency(j, &(struct rope_angles){J, 500, &s, b});
            CHECK(rope_scaling_agrees(&s, a, b) == same);
        }
    CHECK(rope_scaling_agrees(&(struct rope_scaling){.method = ROPE_dynamic}, 1, 33));
}

TEST(rope_scalings_are_equal_only_if_every_field_is)
{
    for (size_t i = 0; i < sizeof rope_methods / sizeof *rope_methods; i++)
        for (size_t j = 0; j < sizeof rope_methods / sizeof *rope_methods; j++) {
            bool same = i == j || (i == 1 && j == 2) || (i == 2 && j == 1);
            CHECK(rope_scaling_equals(&rope_methods[i].scaling, &rope_methods[j].scaling) == same);
        }
    struct rope_scaling computed = rope_methods[3].scaling, given = computed;
    given.attention_factor = 1 + log(given.factor) / 10;
    CHECK(rope_scaling_equals(&computed, &given));
}

TEST(rope_scaling_check_rejects_fields_out_of_range)
{
    struct rope_scaling yarn = rope_methods[4].scaling, bad;
    CHECK_STATUS(OK, rope_scaling_check(&yarn));
    bad = yarn, bad.factor = 0.5;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    bad = yarn, bad.original_context = 0;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    bad = yarn, bad.beta_fast = 1;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    bad = yarn, bad.beta_slow = 0;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    bad = yarn, bad.attention_factor = -1;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    bad = yarn, bad.attention_factor = 1.1e6;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
    CHECK_MESSAGE("model.rope_attention_factor = 1.1e+06: must be between 0 and 1000000");
    bad = (struct rope_scaling){.factor = 2, .method = ROPE_linear};
    CHECK_STATUS(OK, rope_scaling_check(&bad));
    bad.method = ROPE_llama3, bad.original_context = 9;
    CHECK_STATUS(CONFIG, rope_scaling_check(&bad));
}

struct rope_loss {
    struct rope r;
    float *x, *y, *weight, c[12], s[12];
};

static double loss(void *context)
{
    struct rope_loss *k = context;
    memcpy(k->y, k->x, 24 * sizeof *k->y);
    struct rope_io io = {k->y, k->c, k->s, NULL};
    CHECK_STATUS(OK, rope(&ops_cpu_reference, &k->r, &io, rig_queue()));
    return rig_dot(k->y, k->weight, 24);
}

static void check_gradient(int pairs)
{
    struct rope_loss k = {.r = {1, 2, 2, 6, pairs, 0, 12, F32, false}};
    rope_table(2, &(struct rope_angles){pairs, 100, NULL, 0}, k.c, k.s);
    k.x = rig_random(1, 24, F32), k.y = rig_zeros(24, F32), k.weight = rig_random(2, 24, F32);
    float *dx = rig_copy(k.weight, 24, F32);
    struct rope inverse = k.r;
    inverse.inverse = true;
    CHECK_STATUS(
        OK, rope(&ops_cpu_reference, &inverse, &(struct rope_io){dx, k.c, k.s, NULL}, rig_queue()));
    rig_check_gradient("x", k.x, 24, dx, loss, &k);
    free(k.x), free(k.y), free(k.weight), free(dx);
}

TEST(rope_gradient_matches_finite_differences)
{
    for (int pairs = 1; pairs <= 3; pairs++) check_gradient(pairs);
}

TEST(partial_rope_leaves_the_other_coordinates_as_they_are)
{
    enum { T = 3, H = 2, K = 9, J = 2 };
    float c[T * J], s[T * J];
    float *before = rig_random(1, (size_t)T * H * K, F32), *x = rig_copy(before, T * H * K, F32);
    rope_table(T, &(struct rope_angles){J, 100, NULL, 0}, c, s);
    struct rope r = {1, T, H, K, J, 0, H * K, .dtype = F32};
    CHECK_STATUS(OK, rope(&ops_cpu_reference, &r, &(struct rope_io){x, c, s, NULL}, rig_queue()));
    for (int i = 0; i < T * H * K; i++) {
        int t = i / (H * K), k = i % K, j = k % J;
        double angle = t * pow(100, -(double)j / J);
        double other = k < J ? -(double)before[i + J] : k < 2 * J ? (double)before[i - J] : 0;
        double expected =
            k < 2 * J ? (double)before[i] * cos(angle) + other * sin(angle) : (double)before[i];
        CHECK_NEAR((double)x[i], expected, k < 2 * J ? 1e-6 : 0);
    }
    free(before), free(x);
}

TEST(rope_rejects_more_pairs_than_a_head_has_and_short_strides)
{
    struct rope odd = {1, 1, 1, 3, 2, 0, 3, .dtype = F32},
                none = {1, 1, 1, 4, 0, 0, 4, .dtype = F32};
    struct rope close = {1, 1, 2, 4, 2, 0, 7, .dtype = F32};
    CHECK_STATUS(SHAPE, rope(&ops_cpu_reference, &odd, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, rope(&ops_cpu_reference, &none, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, rope(&ops_cpu_reference, &close, NULL, rig_queue()));
}
