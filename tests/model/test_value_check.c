// SPDX-License-Identifier: Apache-2.0
#include "model/value_check.h"

#include "model/shape.h"
#include "test.h"

#include <stdlib.h>

static bool accepts(enum value_kind kind, enum dtype dtype, float value)
{
    bf16 half = bf16_from_f32(value);
    return value_check_find(kind, dtype, dtype == F32 ? (void *)&value : (void *)&half, 1) == 1;
}

TEST(value_check_accepts_what_training_produces_and_nothing_else)
{
    static const struct {
        float value;
        bool weight, exp_avg, exp_avg_sq, gradient;
    } cases[] = {
        {0, 1, 1, 1, 1},         {-0.0f, 1, 1, 1, 1},   {1e-45f, 1, 1, 1, 1},
        {3, 1, 1, 1, 1},         {-3, 1, 1, 0, 1},      {-1e-45f, 1, 1, 0, 1},
        {9.9e5f, 1, 1, 1, 1},    {-9.9e5f, 1, 1, 0, 1}, {1.1e6f, 0, 0, 1, 1},
        {1e30f, 0, 0, 0, 1},     {-1e30f, 0, 0, 0, 1},  {1.1e12f, 0, 0, 0, 1},
        {NAN, 0, 0, 0, 0},       {-NAN, 0, 0, 0, 0},    {INFINITY, 0, 0, 0, 0},
        {-INFINITY, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (enum dtype dtype = F32; dtype <= BF16; dtype++) {
            float x = cases[i].value;
            if (dtype == BF16 && fabsf(x) > 0 && fabsf(x) < 1e-40f) continue; /* rounds to 0 */
            CHECK(accepts(VALUE_WEIGHT, dtype, x) == cases[i].weight);
            CHECK(accepts(VALUE_EXP_AVG, dtype, x) == cases[i].exp_avg);
            CHECK(accepts(VALUE_EXP_AVG_SQ, dtype, x) == cases[i].exp_avg_sq);
            CHECK(accepts(VALUE_GRADIENT, dtype, x) == cases[i].gradient);
        }
}

/* At each position of arrays longer than the blocks in which it searches. */
TEST(value_check_finds_the_first_bad_value)
{
    enum { N = 10001 };
    float *x = heap(N * sizeof *x);
    bf16 *half = heap(N * sizeof *half);
    CHECK(value_check_find(VALUE_WEIGHT, F32, x, 0) == 0);
    CHECK(value_check_find(VALUE_WEIGHT, F32, x, N) == N);
    for (size_t at = N; at-- > 0;) {
        x[at] = NAN, half[at] = bf16_from_f32(INFINITY);
        if (at % 61 && at > 3 && at % 4096 > 1) continue;
        CHECK(value_check_find(VALUE_WEIGHT, F32, x, N) == at);
        CHECK(value_check_find(VALUE_WEIGHT, BF16, half, N) == at);
    }
    free(x), free(half);
}

TEST(value_check_keeps_the_first_bad_value_of_all_parts)
{
    enum { PARTS = 9, EACH = 100 };
    struct value_check c = {.kind = VALUE_EXP_AVG_SQ, .dtype = F32};
    float x[PARTS * EACH] = {[405] = -5, [407] = -7, [777] = -8};
    bf16 half = bf16_from_f32(-2);
#pragma omp parallel for schedule(static, 1)
    for (size_t i = 0; i < PARTS; i++) {
        size_t first = (PARTS - 1 - i) * EACH;
        value_check_part(&c, first, x + first, EACH);
    }
    CHECK(c.is_bad && c.element == 405 && c.value <= -5 && c.value >= -5);
    c = (struct value_check){.kind = VALUE_EXP_AVG_SQ, .dtype = BF16};
    value_check_part(&c, 3, &(bf16){0}, 1);
    CHECK(!c.is_bad);
    value_check_part(&c, 4, &half, 1);
    CHECK(c.is_bad && c.element == 4 && c.value <= -2 && c.value >= -2);
}

TEST(value_check_names_tensor_element_and_what_was_expected)
{
    struct model_shape shape = small_shape();
    struct layout l;
    struct text t = {0};
    layout_init(&l, &shape, 1);
    const struct tensor_slot *up = layout_find(&l, PARAM_mlp_up, 1);
    value_check_describe(&(struct bad_element){VALUE_WEIGHT, up, NULL, 17, (double)NAN}, &t);
    CHECK(!strcmp(t.data, "model.layers.1.mlp.up_proj.weight: element 17 is nan, expected a finite "
                          "value of at most 1e+06 in magnitude"));
    text_clear(&t);
    value_check_describe(&(struct bad_element){VALUE_EXP_AVG_SQ, up, NULL, 3, -1}, &t);
    CHECK(!strcmp(t.data, "model.layers.1.mlp.up_proj.weight.exp_avg_sq: element 3 is -1, expected "
                          "a finite value of at least 0 and at most 1e+12"));
    text_clear(&t);
    value_check_describe(&(struct bad_element){VALUE_GRADIENT, up, NULL, 0, (double)INFINITY}, &t);
    CHECK(!strcmp(t.data, "model.layers.1.mlp.up_proj.weight.grad: element 0 is inf, expected a "
                          "finite value"));
    CHECK(value_check_fail(STATUS_DATA, "/model",
                           &(struct bad_element){VALUE_EXP_AVG_SQ, NULL, "moment", 4, -2}) ==
          STATUS_DATA);
    CHECK(!strcmp(status_message(), "/model: tensor moment: element 4 is -2, expected a finite "
                                    "value of at least 0 and at most 1e+12"));
    text_release(&t);
    layout_release(&l);
}
