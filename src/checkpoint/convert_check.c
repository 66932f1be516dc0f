// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert_check.h"

/* In the GGUF files of these models llama.cpp expects as many rows of q as columns. */
static enum status check_head_width(const struct convert_check *c, const struct model_shape *s)
{
    if (c->target == CONVERT_GGUF && (s->post_norm || model_shape_is_phi3(s)) &&
        s->H * s->K != s->D)
        FAIL(UNSUPPORTED,
             "%s: %d heads of %d are not as wide as the stream of %d, as llama.cpp's %s requires",
             c->from, s->H, s->K, s->D, s->post_norm ? "olmo2" : "phi3");
    return STATUS_OK;
}

/* Whether the target's models can have norms behind attention and feed-forward layer. */
static enum status check_post_norm(const struct convert_check *c, const struct model_shape *s)
{
    if (!s->post_norm) return STATUS_OK;
    if (c->target == CONVERT_META || c->target == CONVERT_NXDT || c->target == CONVERT_DCP)
        FAIL(UNSUPPORTED,
             "%s has norms behind attention and feed-forward layer (model.post_norm), which Llamas "
             "of %s do not have: use --to hf, gguf or native",
             c->from,
             c->target == CONVERT_META   ? "Meta"
             : c->target == CONVERT_NXDT ? "NxD Training"
                                         : "torchtitan");
    return STATUS_OK;
}

/* Whether the target has names for the weights of QK norm. */
static enum status check_qk_norm(const struct convert_check *c, const struct model_shape *s)
{
    const struct dcp_generation_spec *spec = &dcp_generations[c->generation];
    if (!s->qk_norm) return STATUS_OK;
    if (c->target == CONVERT_META || c->target == CONVERT_NXDT)
        FAIL(UNSUPPORTED,
             "%s has QK norm (model.qk_norm), for which %s format has no weights: use --to "
             "hf, gguf, dcp or native",
             c->from, c->target == CONVERT_META ? "Meta's" : "NxD Training's");
    if (c->target == CONVERT_DCP && !spec->has_qk_norm)
        FAIL(UNSUPPORTED,
             "%s has QK norm (model.qk_norm), which --generation %s does not have: use v0.2 or new",
             c->from, spec->name);
    const bool scales =
        s->scaling.factor > 0 && (c->target == CONVERT_DCP || s->scaling.method == ROPE_llama3);
    if ((c->target == CONVERT_GGUF || c->target == CONVERT_DCP) && scales)
        FAIL(UNSUPPORTED,
             "%s has QK norm (model.qk_norm) and scaled RoPE, but %s's %s does not scale RoPE; "
             "--rope-factor none writes the model without scaling",
             c->from, c->target == CONVERT_GGUF ? "llama.cpp" : "torchtitan",
             s->post_norm ? "OLMo 2" : "Qwen3");
    return STATUS_OK;
}

/* Whether the target has names for biases. */
static enum status check_biases(const struct convert_check *c, const struct model_shape *s)
{
    if (!s->qkv_bias && !s->mlp_bias) return STATUS_OK;
    const char *key = s->mlp_bias ? "model.mlp_bias" : "model.attention_bias";
    if (c->target == CONVERT_META || c->target == CONVERT_NXDT || c->target == CONVERT_DCP)
        FAIL(UNSUPPORTED,
             "%s has biases (%s), for which %s format has no weights: use --to hf, gguf or native",
             c->from, key,
             c->target == CONVERT_META   ? "Meta's"
             : c->target == CONVERT_NXDT ? "NxD Training's"
                                         : "torchtitan's");
    if (c->target == CONVERT_GGUF && s->qkv_bias && !s->out_bias && s->scaling.factor > 0 &&
        s->scaling.method == ROPE_llama3)
        FAIL(UNSUPPORTED,
             "%s has biases of q, k and v (%s) and scaled RoPE, but llama.cpp's qwen2 does not "
             "scale "
             "RoPE; --rope-factor none writes the model without scaling",
             c->from, key);
    if (c->target == CONVERT_GGUF && s->qk_norm)
        FAIL(UNSUPPORTED,
             "%s has QK norm (model.qk_norm) and biases (%s): llama.cpp's %s does not have both",
             c->from, key, s->post_norm ? "olmo2" : "qwen3");
    return STATUS_OK;
}

/* Whether the target's models can have Granite's multipliers or blocks without RoPE. */
static enum status check_extra(const struct convert_check *c, const struct model_shape *s)
{
    const bool multiplies = model_shape_multiplies(s);
    const char *what = multiplies ? "Granite's multipliers" : "blocks without RoPE";
    const bool scales = s->scaling.factor > 0 && s->scaling.method == ROPE_llama3;
    if (!multiplies && !s->no_rope_interval) return STATUS_OK;
    if (c->target == CONVERT_META || c->target == CONVERT_NXDT || c->target == CONVERT_DCP)
        FAIL(UNSUPPORTED, "%s has %s, which Llamas of %s do not have: use --to hf, gguf or native",
             c->from, what,
             c->target == CONVERT_META   ? "Meta"
             : c->target == CONVERT_NXDT ? "NxD Training"
                                         : "torchtitan");
    if (c->target != CONVERT_GGUF || multiplies) return STATUS_OK;
    if (s->no_rope_interval != 4)
        FAIL(UNSUPPORTED,
             "%s: every %d blocks one has no RoPE (model.no_rope_layer_interval); llama.cpp's "
             "smollm3 "
             "requires 4: use --to hf or native",
             c->from, s->no_rope_interval);
    if (s->qkv_bias || s->mlp_bias || scales)
        FAIL(UNSUPPORTED, "%s: llama.cpp's smollm3 has neither biases nor Llama 3.1's RoPE scaling",
             c->from);
    return STATUS_OK;
}

/* Whether the target's models can rotate a part of each head. */
static enum status check_phi3(const struct convert_check *c, const struct model_shape *s)
{
    const bool is_refused =
        c->target == CONVERT_META || c->target == CONVERT_NXDT || c->target == CONVERT_DCP;
    if (s->partial_rotary_factor > 0 && is_refused)
        FAIL(UNSUPPORTED,
             "%s rotates %d of %d coordinates of each head (model.partial_rotary_factor), which "
             "Llamas of %s do not: use --to hf, gguf or native",
             c->from, 2 * model_shape_rotary_pairs(s), s->K,
             c->target == CONVERT_META   ? "Meta"
             : c->target == CONVERT_NXDT ? "NxD Training"
                                         : "torchtitan");
    return STATUS_OK;
}

/* Whether the target has sliding windows and can scale RoPE like this. */
static enum status check_rope(const struct convert_check *c, const struct model_shape *s)
{
    static const char *const readers[] = {[CONVERT_META] = "Meta's Llama",
                                          [CONVERT_NXDT] = "NxD Training",
                                          [CONVERT_DCP] = "torchtitan",
                                          [CONVERT_GGUF] = "llama.cpp"};
    const struct rope_scaling *r = &s->scaling;
    bool is_supported = r->factor <= 0 || r->method == ROPE_llama3;
    if (c->target == CONVERT_HF || c->target == CONVERT_NATIVE) return STATUS_OK;
    if (s->window && s->window < s->max_context)
        FAIL(UNSUPPORTED,
             "%s has a sliding window (model.sliding_window) of %d tokens, which %s does not have: "
             "use --to hf or native",
             c->from, s->window, readers[c->target]);
    if (c->target == CONVERT_GGUF) is_supported |= r->method != ROPE_dynamic;
    if (!is_supported)
        FAIL(UNSUPPORTED,
             "%s has RoPE scaling %s, which %s does not have; use --to hf or native, or "
             "--rope-factor none to write the model without scaling",
             c->from, rope_method_name(r), readers[c->target]);
    if (r->method != ROPE_yarn || r->factor <= 0) return STATUS_OK;
    if (r->beta_fast != 32 || r->beta_slow != 1)
        FAIL(UNSUPPORTED,
             "%s has RoPE scaling yarn with beta_fast %g and beta_slow %g; llama.cpp has 32 and 1, "
             "whatever the file says: use --to hf or native",
             c->from, r->beta_fast, r->beta_slow);
    if (r->attention_factor > 0)
        FAIL(UNSUPPORTED,
             "%s has RoPE scaling yarn with attention_factor %g; llama.cpp computes it from the "
             "factor: remove it from config.json",
             c->from, r->attention_factor);
    return STATUS_OK;
}

enum status convert_check_settings(const struct convert_check *c, const struct model_shape *s)
{
    TRY(check_post_norm(c, s));
    TRY(check_head_width(c, s));
    TRY(check_qk_norm(c, s));
    TRY(check_biases(c, s));
    TRY(check_extra(c, s));
    TRY(check_phi3(c, s));
    TRY(check_rope(c, s));
    return STATUS_OK;
}
