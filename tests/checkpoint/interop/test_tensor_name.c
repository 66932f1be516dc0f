// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_name.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

TEST(meta_and_torchtitan_names_parse)
{
    static const struct {
        const char *name;
        struct tensor_name want;
    } names[] = {
        {"tok_embeddings.weight", {PARAM_embed, -1, TENSOR_WEIGHT}},
        {"model.layers.12.attention.wq.weight", {PARAM_attn_q, 12, TENSOR_WEIGHT}},
        {"layers.0.attention.qkv_linear.wv.weight", {PARAM_attn_v, 0, TENSOR_WEIGHT}},
        {"lm_head.weight", {PARAM_head, -1, TENSOR_WEIGHT}},
        {"model.output.weight", {PARAM_head, -1, TENSOR_WEIGHT}},
        {"optimizer.state.layers.3.ffn_norm.weight.exp_avg", {PARAM_mlp_norm, 3, TENSOR_EXP_AVG}},
        {"optimizer.state.model.norm.weight.exp_avg_sq", {PARAM_last_norm, -1, TENSOR_EXP_AVG_SQ}},
    };
    static const char *const others[] = {"layers.01.attention.wq.weight",
                                         "layers..ffn_norm.weight",
                                         "layers.99999999999.ffn_norm.weight",
                                         "norm",
                                         "",
                                         "layers.1.norm.weight",
                                         "norm.weight.exp_avg",
                                         "optimizer.state.norm.weight.step",
                                         "layers.1"};
    struct tensor_name got;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(tensor_name_parse(names[i].name, &got));
        CHECK(got.id == names[i].want.id && got.layer == names[i].want.layer);
        CHECK(got.kind == names[i].want.kind);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!tensor_name_parse(others[i], &got));
    CHECK(tensor_name_is_ignored("rope.freqs") && tensor_name_is_ignored("model.freqs_cis"));
    CHECK(tensor_name_is_ignored("optimizer.param_groups.norm.weight.lr"));
    CHECK(!tensor_name_is_ignored("norm.bias"));
}

TEST(names_parse_without_what_wraps_a_model)
{
    static const char *const rows[][2] = {
        {"state_dict.model.norm.weight", "model.norm.weight"},
        {"model_state_dict._orig_mod.lm_head.weight", "lm_head.weight"},
        {"module._orig_mod.model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight"},
        {"model.layers.0._checkpoint_wrapped_module._fsdp_wrapped_module.mlp.up_proj.weight",
         "model.layers.0.mlp.up_proj.weight"},
        {"model.layers.0._orig_mod", "model.layers.0._orig_mod"}, /* no module follows */
        {"model.module_list.x", "model.module_list.x"},
        {"model.state_dict.x", "model.state_dict.x"},
        {"..a.", "..a."},
        {"module.", ""},
    };
    struct tensor_name got;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *name = tensor_name_unwrap(rows[i][0]);
        if (strcmp(name, rows[i][1])) fail_msg("%s: \"%s\"", rows[i][0], name);
        free(name);
    }
    CHECK(tensor_name_parse_hf(rows[2][0], &got) && got.layer == 3);
    CHECK(tensor_name_parse("optimizer.state._orig_mod.norm.weight.exp_avg", &got));
    CHECK(got.id == PARAM_last_norm && got.kind == TENSOR_EXP_AVG);
    CHECK(!tensor_name_parse("optimizer.state.module.exp_avg", &got));
}

TEST(hugging_face_names_parse_as_the_first_parameter_of_that_name)
{
    struct tensor_name got;
    for (int id = 0; id < PARAM_COUNT; id++) {
        char name[96];
        const struct tensor_slot t = {.id = (enum param_id)id, .layer = 7};
        layout_tensor_name(&t, true, name);
        CHECK(tensor_name_parse_hf(name, &got) && got.id == tensor_name_hf_id(t.id));
    }
    CHECK(tensor_name_hf_id(PARAM_post_attn_norm) == PARAM_mlp_norm);
    CHECK(tensor_name_hf_id(PARAM_wide_k_norm) == PARAM_k_norm);
    CHECK(tensor_name_hf_id(PARAM_post_mlp_norm) == PARAM_post_mlp_norm);
}

TEST(current_torchtitan_names_round_trip)
{
    for (int id = 0; id < PARAM_COUNT; id++) {
        bool block = strstr(params[id].name, "%d") != NULL;
        const struct tensor_slot t = {.id = (enum param_id)id, .layer = block ? 7 : -1};
        struct tensor_name got;
        char name[96];
        layout_tensor_name(&t, false, name);
        char *newest = tensor_name_torchtitan(name);
        CHECK(tensor_name_parse(newest, &got) && got.id == t.id && got.layer == t.layer);
        bool renamed =
            id == PARAM_attn_q || id == PARAM_attn_k || id == PARAM_attn_v || id == PARAM_head;
        CHECK(renamed == (strcmp(newest, name) != 0));
        free(newest);
    }
}
