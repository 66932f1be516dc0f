// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_family.h"

#include <string.h>

/* Defaults as in the configuration classes of Transformers 5.  Mistral without windows is Llama. */
static const struct hf_family families[] = {
    {"llama", "LlamaForCausalLM", false, 0, 0, 2048, HF_WINDOWS_NONE},
    {"qwen3", "Qwen3ForCausalLM", true, 32, 128, 32768, HF_WINDOWS_FLAG},
    {"mistral", "MistralForCausalLM", false, 8, 0, 131072, HF_WINDOWS_SIZE},
};

/* Families that are not supported, by prefix of their model_type: the first match counts. */
static const struct {
    const char *begins, *difference;
} other_families[] = {
    {"llama4", "it is a mixture of experts (MoE)"},
    {"mixtral", "it is a mixture of experts (MoE)"},
    {"qwen2_moe", "it is a mixture of experts (MoE)"},
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
    {"qwen2", "it has biases of q, k and v"},
    {"mistral3", "it also reads images"},
    {"ministral", "its attention has sliding windows"},
    {"granite", "it scales embeddings, residuals, attention and logits"},
    {"smollm3", "it has layers without RoPE (NoPE)"},
    {"olmo", "it has norms in other places, or others than RMSNorm"},
    {"phi3", "it stores q, k and v, and gate and up, as one matrix each"},
    {"gpt", "it has LayerNorm and biases"},
};

const struct hf_family *hf_family_of(const struct model_shape *s)
{
    const struct hf_family *f = families;
    while (f->qk_norm != s->qk_norm) f++; /* both values are in the table */
    return f;
}

enum status hf_family_find(const char *model_type, const struct hf_family **family)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(model_type, families[i].model_type)) {
            *family = &families[i];
            return STATUS_OK;
        }
    for (size_t i = 0; i < sizeof other_families / sizeof *other_families; i++) {
        const char *begins = other_families[i].begins;
        if (!strncmp(model_type, begins, strlen(begins)))
            FAIL(UNSUPPORTED,
                 "model_type \"%s\" is not supported: %s; must be llama, mistral or qwen3",
                 model_type, other_families[i].difference);
    }
    FAIL(UNSUPPORTED, "model_type \"%s\" is not supported: must be llama, mistral or qwen3",
         model_type);
}
