// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"
#include "model/init_weights.h"

static double deviation(const float *w, const struct tensor_slot *t)
{
    double squares = 0;
    for (size_t i = 0; i < t->elements; i++)
        squares += (double)w[t->offset + i] * (double)w[t->offset + i];
    return sqrt(squares / (double)t->elements);
}

static void init_all(const struct layout *l, const struct model_shape *s, uint64_t seed, float *w)
{
    const struct store to = store_f32(w, NULL);
    struct shard all;
    shard_init(&all, l, 0, 1);
    CHECK_STATUS(OK, init_weights_store(l, &all, s, seed, &to));
    shard_release(&all);
}

TEST(init_weights_has_the_deviations_of_torchtitan)
{
    struct model_shape s = {
        .V = 512, .D = 128, .L = 2, .H = 4, .G = 2, .K = 32, .F = 256, .depth_init = true};
    struct layout l;
    layout_init(&l, &s, 1);
    float *w = heap(l.elements * sizeof *w), *again = heap(l.elements * sizeof *w);
    init_all(&l, &s, 7, w);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_embed, -1)), 1, 0.01);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_attn_q, 1)) / 0.02, 1, 0.02);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_attn_out, 0)) / (0.02 / sqrt(2)), 1, 0.02);
    CHECK_NEAR(deviation(w, layout_find(&l, PARAM_mlp_up, 1)) / (0.02 / sqrt(4)), 1, 0.02);
    const struct tensor_slot *head = layout_find(&l, PARAM_head, -1);
    double max = 0; /* a normal truncated at three deviations keeps 0.9867 of its deviation */
    CHECK_NEAR(deviation(w, head) * sqrt(128), 0.9867, 0.01);
    for (size_t i = 0; i < head->elements; i++) max = fmax(max, fabs(w[head->offset + i]));
    CHECK(max <= 3 / sqrt(128) && max > 2.9 / sqrt(128));
    CHECK(w[layout_find(&l, PARAM_mlp_norm, 1)->offset] == 1);
    init_all(&l, &s, 7, again);
    CHECK(!memcmp(w, again, l.elements * sizeof *w));
    init_all(&l, &s, 8, again);
    CHECK(memcmp(w, again, l.elements * sizeof *w));
    s.depth_init = false;
    init_all(&l, &s, 7, again);
    CHECK_NEAR(deviation(again, layout_find(&l, PARAM_attn_out, 0)) / (0.02 / sqrt(4)), 1, 0.02);
    free(w), free(again);
    layout_release(&l);
}

/* All other weights keep their random numbers, and these are those of earlier versions. */
TEST(qk_norm_starts_with_ones_biases_with_zeros_and_they_change_no_other_weight)
{
    struct model_shape s = {
        .V = 64, .D = 32, .L = 2, .H = 4, .G = 2, .K = 8, .F = 48, .depth_init = true};
    struct layout plain, l;
    layout_init(&plain, &s, 1);
    s.qk_norm = true, s.qkv_bias = s.out_bias = s.mlp_bias = true;
    layout_init(&l, &s, 1);
    float *before = heap(plain.elements * sizeof *before), *w = heap(l.elements * sizeof *w);
    init_all(&plain, &s, 7, before), init_all(&l, &s, 7, w);
    for (int i = 0; i < l.num_tensors; i++) {
        const struct tensor_slot *t = &l.tensors[i], *old = layout_find(&plain, t->id, t->layer);
        if (old) CHECK(!memcmp(w + t->offset, before + old->offset, t->elements * sizeof *w));
        float start = t->id == PARAM_q_norm || t->id == PARAM_k_norm ? 1 : 0;
        for (size_t j = 0; !old && j < t->elements; j++) CHECK(w[t->offset + j] == start);
    }
    CHECK_NEAR(before[layout_find(&plain, PARAM_embed, -1)->offset], -0.741585851, 1e-8);
    CHECK_NEAR(before[layout_find(&plain, PARAM_mlp_down, 1)->offset], 0.00659464393, 1e-8);
    CHECK_NEAR(before[layout_find(&plain, PARAM_head, -1)->offset], 0.113871954, 1e-8);
    free(before), free(w);
    layout_release(&plain), layout_release(&l);
}

TEST(init_weights_has_one_deviation_for_normal_and_megatron)
{
    struct model_shape s = {
        .V = 512, .D = 128, .L = 2, .H = 4, .G = 2, .K = 32, .F = 256, .init_std = 0.0134};
    struct layout l;
    layout_init(&l, &s, 1);
    float *w = heap(l.elements * sizeof *w);
    for (int scaled = 0; scaled < 2; scaled++) {
        s.init = scaled ? INIT_megatron : INIT_normal;
        init_all(&l, &s, 7, w);
        double out = deviation(w, layout_find(&l, PARAM_attn_out, 1));
        double down = deviation(w, layout_find(&l, PARAM_mlp_down, 0));
        CHECK_NEAR(out / 0.0134, scaled ? 0.5 : 1, 0.02); /* sqrt(2 L) = 2 */
        CHECK_NEAR(down / 0.0134, scaled ? 0.5 : 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_mlp_up, 1)) / 0.0134, 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_embed, -1)) / 0.0134, 1, 0.02);
        CHECK_NEAR(deviation(w, layout_find(&l, PARAM_head, -1)) / 0.0134, 1, 0.02);
        CHECK(w[layout_find(&l, PARAM_mlp_norm, 1)->offset] == 1);
    }
    free(w);
    layout_release(&l);
}

TEST(init_weights_repeat_draws_the_first_elements_of_each_tensor)
{
    struct model_shape s = {
        .V = 1024, .D = 128, .L = 1, .H = 4, .G = 2, .K = 32, .F = 256, .depth_init = true};
    struct layout l;
    struct shard all;
    enum { PERIOD = 65521 };
    layout_init(&l, &s, 1);
    shard_init(&all, &l, 0, 1);
    float *w = heap(l.elements * sizeof *w), *whole = heap(l.elements * sizeof *w);
    struct store to = store_f32(w, NULL);
    init_all(&l, &s, 7, whole);
    CHECK_STATUS(OK, init_weights_repeat(&l, &all, &s, 7, &to));
    for (int i = 0; i < l.num_tensors; i++)
        for (size_t j = 0; j < l.tensors[i].elements; j++)
            CHECK(w[l.tensors[i].offset + j] == whole[l.tensors[i].offset + j % PERIOD]);
    free(w), free(whole);
    shard_release(&all);
    layout_release(&l);
}
