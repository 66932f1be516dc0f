// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_family.h"

#include <stdio.h>
#include <string.h>

/* Defaults as in the configuration classes of Transformers 5.  A Mistral without a window is
 * written as a Llama, and so is a Phi-3 that rotates whole heads; but see is_family. */
static const struct hf_family families[] = {
    {"llama", "LlamaForCausalLM", false, HF_BIASES_BOTH, 0, 0, 2048, HF_WINDOWS_NONE, HF_EXTRA_NONE,
     1e4, false, 1e-6},
    {"qwen2", "Qwen2ForCausalLM", false, HF_BIASES_QKV, 32, 0, 32768, HF_WINDOWS_FLAG,
     HF_EXTRA_NONE, 1e4, false, 1e-6},
    {"qwen3", "Qwen3ForCausalLM", true, HF_BIASES_ATTENTION, 32, 128, 32768, HF_WINDOWS_FLAG,
     HF_EXTRA_NONE, 1e4, false, 1e-6},
    {"mistral", "MistralForCausalLM", false, HF_BIASES_NONE, 8, 0, 131072, HF_WINDOWS_SIZE,
     HF_EXTRA_NONE, 1e4, false, 1e-6},
    {"granite", "GraniteForCausalLM", false, HF_BIASES_BOTH, 0, 0, 2048, HF_WINDOWS_NONE,
     HF_EXTRA_MULTIPLIERS, 1e4, false, 1e-6},
    {"smollm3", "SmolLM3ForCausalLM", false, HF_BIASES_BOTH, 4, 0, 32768, HF_WINDOWS_FLAG,
     HF_EXTRA_NO_ROPE, 2e6, true, 1e-6},
    {"olmo2", "Olmo2ForCausalLM", true, HF_BIASES_ATTENTION, 0, 0, 2048, HF_WINDOWS_NONE,
     HF_EXTRA_POST_NORM, 1e4, false, 1e-5},
    {"phi3", "Phi3ForCausalLM", false, HF_BIASES_NONE, 0, 0, 4096, HF_WINDOWS_OPTIONAL,
     HF_EXTRA_PHI3, 1e4, false, 1e-5},
};
enum { NUM_FAMILIES = sizeof families / sizeof *families };

/* Families that are not supported, by prefix of their model_type: the first match counts. */
static const struct {
    const char *begins, *difference;
} other_families[] = {
    {"llama4", "it is a mixture of experts (MoE)"},
    {"mixtral", "it is a mixture of experts (MoE)"},
    {"qwen2_moe", "it is a mixture of experts (MoE)"},
    {"qwen2_vl", "it also reads images"},
    {"qwen2_5", "it also reads images or sound"},
    {"qwen2_audio", "it also reads sound"},
    {"qwen3_vl", "it also reads images"},
    {"qwen3_omni", "it also reads images and sound"},
    {"qwen3_5", "it has linear attention"},
    {"qwen3_moe", "it is a mixture of experts (MoE)"},
    {"qwen3_next", "it is a mixture of experts (MoE) with linear attention"},
    {"granitemoe", "it is a mixture of experts (MoE)"},
    {"olmoe", "it is a mixture of experts (MoE)"},
    {"phimoe", "it is a mixture of experts (MoE)"},
    {"gpt_oss", "it is a mixture of experts (MoE) with attention sinks"},
    {"dbrx", "it is a mixture of experts (MoE)"},
    {"deepseek", "it has multi-head latent attention (MLA) or is a mixture of experts (MoE)"},
    {"kimi", "it has multi-head latent attention (MLA) and is a mixture of experts (MoE)"},
    {"minicpm3", "it has multi-head latent attention (MLA)"},
    {"gemma", "it has norms with an offset, GELU and scaled embeddings, Gemma 2 also soft caps"},
    {"mamba", "it is a state space model"},
    {"falcon_mamba", "it is a state space model"},
    {"jamba", "it has layers of a state space model"},
    {"bamba", "it has layers of a state space model"},
    {"zamba", "it has layers of a state space model"},
    {"mistral3", "it also reads images"},
    {"ministral", "its layers have different kinds of attention"},
    {"granite_", "it reads sound or images"},
    {"olmo3", "its layers have different kinds of attention"},
    {"olmo", "it has LayerNorm without weights"},
    {"phi3_v", "it also reads images"},
    {"phi4_multimodal", "it also reads images and sound"},
    {"phi", "it has LayerNorm, biases and blocks with parallel attention"},
    {"gpt", "it has LayerNorm and biases"},
};

static bool has_biases(const struct hf_family *f, const struct model_shape *s)
{
    const bool only_qkv = s->qkv_bias && !s->out_bias;
    switch (f->biases) {
    case HF_BIASES_NONE: return !s->qkv_bias && !s->mlp_bias;
    case HF_BIASES_QKV: return only_qkv && !s->mlp_bias;
    case HF_BIASES_ATTENTION: return !only_qkv && !s->mlp_bias;
    case HF_BIASES_BOTH: return !only_qkv;
    }
    return false;
}

static enum hf_extra extra_of(const struct model_shape *s)
{
    return model_shape_is_phi3(s)      ? HF_EXTRA_PHI3
           : s->post_norm              ? HF_EXTRA_POST_NORM
           : s->no_rope_interval       ? HF_EXTRA_NO_ROPE
           : model_shape_multiplies(s) ? HF_EXTRA_MULTIPLIERS
                                       : HF_EXTRA_NONE;
}

/* LlamaConfig of Transformers 5 refuses a width that the heads do not divide, even with a head_dim.
 * A Mistral without a window, or with biases a Granite whose multipliers change nothing, is the
 * same. */
static bool is_family(const struct hf_family *f, const struct model_shape *s)
{
    const bool is_llama = !strcmp(f->model_type, "llama"), divides = !s->H || s->D % s->H == 0;
    const bool is_neutral = f->extra == HF_EXTRA_MULTIPLIERS && extra_of(s) == HF_EXTRA_NONE;
    return f->qk_norm == s->qk_norm && (f->extra == extra_of(s) || (is_neutral && !divides)) &&
           has_biases(f, s) && (!s->window || f->windows >= HF_WINDOWS_SIZE) &&
           (divides || !is_llama);
}

const struct hf_family *hf_family_of(const struct model_shape *s)
{
    for (size_t i = 0; i < NUM_FAMILIES; i++)
        if (is_family(&families[i], s)) return &families[i];
    BUG("model_shape_check accepts a model of no family");
}

/* "llama, qwen2, ... or olmo2" */
static void list_families(char *to, size_t size)
{
    int at = 0;
    for (size_t i = 0; i < NUM_FAMILIES; i++)
        at += snprintf(to + at, size - (size_t)at, "%s%s", families[i].model_type,
                       i + 2 < NUM_FAMILIES    ? ", "
                       : i + 2 == NUM_FAMILIES ? " or "
                                               : "");
}

enum status hf_family_find(const char *model_type, const struct hf_family **family)
{
    char all[160];
    for (size_t i = 0; i < NUM_FAMILIES; i++)
        if (!strcmp(model_type, families[i].model_type)) {
            *family = &families[i];
            return STATUS_OK;
        }
    list_families(all, sizeof all);
    for (size_t i = 0; i < sizeof other_families / sizeof *other_families; i++) {
        const char *begins = other_families[i].begins;
        if (!strncmp(model_type, begins, strlen(begins)))
            FAIL(UNSUPPORTED, "model_type \"%s\" is not supported: %s; must be %s", model_type,
                 other_families[i].difference, all);
    }
    FAIL(UNSUPPORTED, "model_type \"%s\" is not supported: must be %s", model_type, all);
}
