// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_family.h"

#include "checkpoint/rig.h"

TEST(a_shape_has_the_family_that_reads_as_this_shape)
{
    static const struct {
        const char *type;
        struct model_shape shape;
    } cases[] = {
        {"llama", {0}},
        {"llama", {.qkv_bias = true, .out_bias = true, .mlp_bias = true}},
        {"llama", {.mlp_bias = true}},
        {"qwen2", {.qkv_bias = true}},
        {"granite", {.logits_scaling = 8}},
        {"granite", {.attention_multiplier = 0.1, .qkv_bias = true, .out_bias = true}},
        {"smollm3", {.no_rope_interval = 4}},
        {"smollm3", {.no_rope_interval = 4, .mlp_bias = true}},
        {"qwen3", {.qk_norm = true}},
        {"mistral", {.window = 7}},
        {"olmo2", {.qk_norm = true, .post_norm = true}},
        {"olmo2", {.qk_norm = true, .post_norm = true, .qkv_bias = true, .out_bias = true}},
        {"qwen3", {.qk_norm = true, .qkv_bias = true, .out_bias = true}},
        {"phi3", {.partial_rotary_factor = 0.75}},
        {"phi3", {.partial_rotary_factor = 0.75, .window = 7}},
        {"llama", {.D = 64, .H = 4}},
        {"mistral", {.D = 64, .H = 3}}, /* LlamaConfig refuses this width */
        {"granite", {.D = 64, .H = 3, .mlp_bias = true}},
        {"qwen2", {.D = 64, .H = 3, .qkv_bias = true}},
        {"qwen3", {.D = 64, .H = 3, .qk_norm = true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct model_shape s = cases[i].shape;
        const struct hf_family *f;
        CHECK_STATUS(OK, hf_family_find(cases[i].type, &f));
        CHECK(f == hf_family_of(&s) && f->qk_norm == s.qk_norm);
    }
}

TEST(other_families_are_refused_with_their_difference)
{
    static const char *const cases[][2] = {
        {"mixtral", "(MoE)"},
        {"qwen3_moe", "(MoE)"},
        {"qwen2_vl", "reads images"},
        {"gemma2", "soft caps"},
        {"mamba2", "state space"},
        {"ministral", "kinds of attention"},
        {"deepseek_v3", "(MLA)"},
        {"granitemoe", "(MoE)"},
        {"granite_speech", "sound or images"},
        {"olmo", "LayerNorm"},
        {"phi", "LayerNorm"},
        {"phimoe", "(MoE)"},
        {"phi3_v", "reads images"},
        {"olmo3", "kinds of attention"},
        {"rwkv",
         "supported: must be llama, qwen2, qwen3, mistral, granite, smollm3, olmo2 or phi3"},
        {"", "model_type \"\" is not supported"},
    };
    const struct hf_family *f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(UNSUPPORTED, hf_family_find(cases[i][0], &f));
        CHECK_MESSAGE(cases[i][1]);
        CHECK_MESSAGE("must be llama, qwen2, qwen3, mistral, granite, smollm3, olmo2 or phi3");
    }
}
