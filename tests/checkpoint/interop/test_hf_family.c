// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_family.h"

#include "checkpoint/rig.h"

TEST(a_shape_has_the_family_that_reads_as_this_shape)
{
    static const char *const types[] = {"llama", "qwen3"};
    for (int i = 0; i < 2; i++) {
        const struct model_shape s = {.qk_norm = i};
        const struct hf_family *f;
        CHECK_STATUS(OK, hf_family_find(types[i], &f));
        CHECK(f == hf_family_of(&s) && f->qk_norm == s.qk_norm);
    }
}

TEST(other_families_are_refused_with_their_difference)
{
    static const char *const cases[][2] = {
        {"mixtral", "(MoE)"},
        {"qwen3_moe", "(MoE)"},
        {"qwen2", "biases"},
        {"gemma2", "soft caps"},
        {"mamba2", "state space"},
        {"ministral", "sliding window"},
        {"deepseek_v3", "(MLA)"},
        {"granite", "logits"},
        {"smollm3", "(NoPE)"},
        {"olmo2", "in other places"},
        {"rwkv", "supported: must be llama, mistral or qwen3"},
        {"", "model_type \"\" is not supported"},
    };
    const struct hf_family *f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(UNSUPPORTED, hf_family_find(cases[i][0], &f));
        CHECK_MESSAGE(cases[i][1]);
        CHECK_MESSAGE("must be llama, mistral or qwen3");
    }
}
