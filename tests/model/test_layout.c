// SPDX-License-Identifier: Apache-2.0
#include "model/shape.h"
#include "test.h"

#include "base/text.h"

static struct model_shape layout_shape(void)
{
    struct model_shape s = small_shape();
    s.V = 50, s.D = 24, s.L = 3, s.K = 6, s.F = 40;
    return s;
}

TEST(layout_aligns_units_and_fuses_adjacent_matrices)
{
    struct model_shape shape = layout_shape();
    struct layout l;
    layout_init(&l, &shape, 1);
    CHECK(l.num_tensors == 3 * 9 + 3 && l.num_blocks == 3);
    for (int layer = 0; layer < shape.L; layer++) {
        const struct tensor_slot *norm = layout_find(&l, PARAM_attn_norm, layer);
        const struct tensor_slot *q = layout_find(&l, PARAM_attn_q, layer);
        const struct tensor_slot *k = layout_find(&l, PARAM_attn_k, layer);
        const struct tensor_slot *v = layout_find(&l, PARAM_attn_v, layer);
        const struct tensor_slot *gate = layout_find(&l, PARAM_mlp_gate, layer);
        const struct tensor_slot *up = layout_find(&l, PARAM_mlp_up, layer);
        CHECK(norm->offset % 64 == 0 && q->rows == 24 && k->rows == 12 && k->columns == 24);
        CHECK(k->offset == q->offset + q->elements && v->offset == k->offset + k->elements);
        CHECK(up->offset == gate->offset + gate->elements && up->layer == layer);
    }
    CHECK(layout_find(&l, PARAM_last_norm, -1)->offset % 64 == 0 && l.elements % 64 == 0);
    CHECK(!layout_find(&l, PARAM_attn_q, 3) && !layout_find(&l, PARAM_attn_q, -1));
    CHECK(!layout_find(&l, PARAM_head, 0));
    layout_release(&l);
}

TEST(only_a_layout_with_qk_norm_has_its_weights)
{
    struct model_shape s = layout_shape();
    struct layout plain, l;
    layout_init(&plain, &s, 1);
    s.qk_norm = true;
    layout_init(&l, &s, 1);
    CHECK(!layout_find(&plain, PARAM_q_norm, 0) && !layout_find(&plain, PARAM_k_norm, 2));
    CHECK(l.num_tensors == plain.num_tensors + 2 * s.L);
    CHECK(l.parameters == plain.parameters + 2 * s.L * s.K);
    for (int layer = 0; layer < s.L; layer++) {
        const struct tensor_slot *q = layout_find(&l, PARAM_q_norm, layer);
        const struct tensor_slot *k = layout_find(&l, PARAM_k_norm, layer);
        CHECK(q->rows == s.K && q->columns == 1 && k->offset == q->offset + 6 && k->layer == layer);
        CHECK(layout_unit(&l, PARAM_q_norm, layer) == layout_unit(&l, PARAM_attn_norm, layer));
    }
    CHECK(layout_find_hf(&l, "model.layers.1.self_attn.q_norm.weight")->id == PARAM_q_norm);
    CHECK(!layout_find_hf(&plain, "model.layers.1.self_attn.q_norm.weight"));
    layout_release(&plain), layout_release(&l);
}

TEST(a_layout_with_norms_behind_has_no_norms_in_front)
{
    struct model_shape s = layout_shape();
    struct layout l;
    s.qk_norm = s.post_norm = true;
    layout_init(&l, &s, 1);
    CHECK(!layout_find(&l, PARAM_attn_norm, 0) && !layout_find(&l, PARAM_mlp_norm, 0));
    CHECK(!layout_find(&l, PARAM_q_norm, 0) && layout_find(&l, PARAM_post_attn_norm, 0));
    CHECK(layout_find(&l, PARAM_wide_q_norm, 1)->rows == s.H * s.K);
    CHECK(layout_find(&l, PARAM_wide_k_norm, 1)->rows == s.G * s.K);
    CHECK(layout_find_hf(&l, "model.layers.1.post_attention_layernorm.weight")->id ==
          PARAM_post_attn_norm);
    CHECK(layout_find_hf(&l, "model.layers.1.post_feedforward_layernorm.weight")->id ==
          PARAM_post_mlp_norm);
    layout_release(&l);
}

TEST(biases_of_stacked_matrices_are_contiguous)
{
    struct model_shape s = layout_shape();
    struct layout plain, l;
    const struct stage whole = layout_whole_stage(&s);
    size_t Q = (size_t)(s.H * s.K), P = (size_t)(s.G * s.K);
    layout_init(&plain, &s, 1);
    s.qkv_bias = true;
    layout_init(&l, &s, 1);
    CHECK(l.parameters == plain.parameters + s.L * (int64_t)(Q + 2 * P));
    CHECK(!layout_find(&l, PARAM_out_bias, 0) && !layout_find(&plain, PARAM_q_bias, 0));
    layout_release(&l);
    s.out_bias = s.mlp_bias = true;
    layout_init_part(&l, &s, &(struct model_part){&whole, 1, 1, 128});
    CHECK(l.parameters == plain.parameters + s.L * (int64_t)(Q + 2 * P + 2 * (size_t)(s.D + s.F)));
    for (int layer = 0; layer < s.L; layer++) {
        size_t q = layout_find(&l, PARAM_q_bias, layer)->offset;
        size_t gate = layout_find(&l, PARAM_gate_bias, layer)->offset;
        CHECK(layout_find(&l, PARAM_k_bias, layer)->offset == q + Q);
        CHECK(layout_find(&l, PARAM_v_bias, layer)->offset == q + Q + P);
        CHECK(layout_find(&l, PARAM_up_bias, layer)->offset == gate + (size_t)s.F);
        CHECK(q % 128 == 0 && gate % 128 == 0);
        CHECK(layout_find(&l, PARAM_out_bias, layer)->rows == s.D);
    }
    CHECK(layout_find_hf(&l, "model.layers.1.mlp.down_proj.bias")->id == PARAM_down_bias);
    layout_release(&plain), layout_release(&l);
}

TEST(layout_of_tied_model_has_no_head)
{
    struct model_shape s = layout_shape();
    struct layout l;
    s.tied = true;
    layout_init(&l, &s, 1);
    CHECK(!layout_find(&l, PARAM_head, -1) && !layout_find_hf(&l, "lm_head.weight"));
    CHECK(layout_find(&l, PARAM_last_norm, -1) && l.num_blocks == 3);
    layout_release(&l);
}

TEST(layout_finds_tensors_by_hugging_face_name)
{
    struct model_shape shape = layout_shape();
    struct layout l;
    char name[96];
    layout_init(&l, &shape, 1);
    for (int i = 0; i < l.num_tensors; i++) {
        layout_tensor_name(&l.tensors[i], true, name);
        CHECK(layout_find_hf(&l, name) == &l.tensors[i]);
    }
    CHECK(layout_find_hf(&l, "model.layers.2.mlp.up_proj.weight")->id == PARAM_mlp_up);
    layout_tensor_name(layout_find(&l, PARAM_attn_out, 1), false, name);
    assert_string_equal(name, "layers.1.attention.wo.weight");
    static const char *const wrong[] = {"model.layers.3.mlp.up_proj.weight",
                                        "model.layers.02.mlp.up_proj.weight",
                                        "model.layers.-1.mlp.up_proj.weight",
                                        "model.layers.99999999999999999999.x",
                                        "",
                                        "model.layers.1.mlp.up_proj.bias"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(!layout_find_hf(&l, wrong[i]));
    layout_release(&l);
}

TEST(tensors_can_be_aligned_except_those_that_form_one_matrix)
{
    struct model_shape s = layout_shape();
    const struct stage all = layout_whole_stage(&s);
    struct layout l;
    layout_init_part(&l, &s, &(struct model_part){&all, 1, 3, 256});
    for (int i = 0; i < l.num_tensors; i++) {
        const struct tensor_slot *t = &l.tensors[i];
        bool continues = t->id == PARAM_attn_k || t->id == PARAM_attn_v || t->id == PARAM_mlp_up;
        CHECK(continues ? t->offset == t[-1].offset + t[-1].elements : t->offset % 256 == 0);
    }
    for (int i = 0; i < l.num_units; i++) {
        const struct unit *u = &l.units[i];
        const struct tensor_slot *last = &l.tensors[u->first_tensor + u->num_tensors - 1];
        CHECK(u->elements % (3 * 256) == 0 && u->offset % (3 * 256) == 0);
        CHECK(last->offset + last->elements <= u->offset + u->elements);
    }
    layout_release(&l);
}

TEST(layout_of_stages_has_only_their_tensors)
{
    const struct stage some[] = {{.begin = 0, .end = 1, .embeds = true}, {.begin = 2, .end = 3}};
    const struct stage last = {.begin = 2, .end = 3, .heads = true};
    struct model_shape s = layout_shape();
    struct layout l;
    layout_init_part(&l, &s, &(struct model_part){some, 2, 4, 0});
    CHECK(l.num_units == 3 && l.num_tensors == 1 + 2 * 9 && l.num_blocks == 3);
    CHECK(l.units[0].stage == 0 && l.units[1].stage == 0 && l.units[2].stage == 1);
    CHECK(layout_unit(&l, PARAM_attn_q, 2) == 2 && layout_unit(&l, PARAM_attn_q, 1) == -1);
    CHECK(!layout_find(&l, PARAM_mlp_up, 1) && !layout_find(&l, PARAM_last_norm, -1));
    CHECK(layout_find(&l, PARAM_mlp_up, 2)->layer == 2);
    CHECK(!layout_find_hf(&l, "model.layers.1.mlp.up_proj.weight"));
    CHECK(layout_find_hf(&l, "model.layers.2.mlp.up_proj.weight"));
    layout_release(&l);

    s.tied = true; /* the stage with the head needs the embedding as its head */
    layout_init_part(&l, &s, &(struct model_part){&last, 1, 1, 0});
    CHECK(l.num_units == 3 && layout_unit(&l, PARAM_embed, -1) == 1);
    CHECK(layout_unit(&l, PARAM_last_norm, -1) == 2 && !layout_find(&l, PARAM_head, -1));
    layout_release(&l);
}
