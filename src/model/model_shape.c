// SPDX-License-Identifier: Apache-2.0
#include "model/model_shape.h"

#include "base/closest.h"
#include "base/text.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct rope_scaling none = {0}, llama31 = {.factor = 8,
                                                        .low_frequency_factor = 1,
                                                        .high_frequency_factor = 4,
                                                        .original_context = 8192};
static const struct rope_scaling llama32 = {
    .factor = 32, .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 8192};

/* What the flavors of a family have in common; the others are Llamas. */
static const struct model_family {
    const char *name;
    int K; /* 0: D / H */
    double norm_eps;
    bool qk_norm;
    enum attention_bias biases;
    int no_rope_interval;
    bool post_norm;
} families[] = {
    {"mistral", 0, 1e-5, false, ATTENTION_BIAS_none, 0, false},
    {"olmo2", 0, 1e-6, true, ATTENTION_BIAS_none, 0, true},
    {"qwen2.5", 0, 1e-6, false, ATTENTION_BIAS_qkv, 0, false},
    {"qwen3", 128, 1e-6, true, ATTENTION_BIAS_none, 0, false},
    {"smollm3", 0, 1e-6, false, ATTENTION_BIAS_none, 4, false},
    {NULL, 0, 1e-5, false, ATTENTION_BIAS_none, 0, false},
};

static const struct model_family *family_of(const char *name)
{
    const struct model_family *f = families;
    while (f->name && strcmp(f->name, name)) f++;
    return f;
}

struct flavor {
    const char *family, *name;
    int D, L, H, G;
    double ffn_multiplier; /* F = int(multiplier * int(8 D / 3)) up to a multiple of ffn_multiple */
    int ffn_multiple, V, max_context;
    double rope_theta;
    const struct rope_scaling *scaling;
    bool tied;
    bool documents; /* torchtitan's attn_mask_type is block_causal */
};

/* llama3 is torchtitan v0.2's family, always with scaled RoPE.  It has no 1B and 3B; under llama3
 * these names mean the older fork's models, since its config files use them.  frontier is that
 * fork's family, never with scaled RoPE.  llama3.1 and llama3.2 are Meta's models. */
static const struct flavor flavors[] = {
    {"llama2", "debugmodel", 256, 8, 16, 16, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "271M", 1024, 16, 8, 8, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "1B", 2048, 18, 16, 16, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "7B", 4096, 32, 32, 32, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "13B", 5120, 40, 40, 40, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "26B", 5120, 80, 40, 40, 1, 256, 32000, 4096, 1e4, &none, false, false},
    {"llama2", "70B", 8192, 80, 64, 8, 1.3, 4096, 32000, 4096, 1e4, &none, false, false},
    {"llama3", "debugmodel", 256, 6, 16, 16, 1, 256, 2048, 131072, 5e5, &llama31, false, false},
    {"llama3", "debugmodel_flex_attn", 256, 6, 16, 16, 1, 256, 2048, 131072, 5e5, &llama31, false,
     true},
    {"llama3", "debugmodel_varlen_attn", 256, 6, 16, 16, 1, 256, 2048, 131072, 5e5, &llama31, false,
     true},
    {"llama3", "1B", 2048, 16, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &none, false, false},
    {"llama3", "3B", 3072, 28, 24, 8, 1.3, 1024, 128256, 131072, 5e5, &none, false, false},
    {"llama3", "8B", 4096, 32, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &llama31, false, false},
    {"llama3", "8B_flex", 4096, 32, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &llama31, false, true},
    {"llama3", "8B_varlen", 4096, 32, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &llama31, false, true},
    {"llama3", "70B", 8192, 80, 64, 8, 1.3, 4096, 128256, 131072, 5e5, &llama31, false, false},
    {"llama3", "405B", 16384, 126, 128, 8, 1.2, 4096, 128256, 131072, 5e5, &llama31, false, false},
    {"llama3.1", "8B", 4096, 32, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &llama31, false, false},
    {"llama3.1", "70B", 8192, 80, 64, 8, 1.3, 4096, 128256, 131072, 5e5, &llama31, false, false},
    {"llama3.1", "405B", 16384, 126, 128, 8, 1.2, 4096, 128256, 131072, 5e5, &llama31, false,
     false},
    {"llama3.2", "1B", 2048, 16, 32, 8, 1.5, 256, 128256, 131072, 5e5, &llama32, true, false},
    {"llama3.2", "3B", 3072, 28, 24, 8, 1, 256, 128256, 131072, 5e5, &llama32, true, false},
    {"frontier", "debugmodel", 256, 8, 16, 16, 1, 256, 128256, 8192, 5e5, &none, false, false},
    {"frontier", "250M", 1024, 16, 16, 8, 1.3, 1024, 32000, 131072, 1e5, &none, false, false},
    {"frontier", "870M", 2048, 16, 32, 8, 1.3, 1024, 32000, 131072, 1e5, &none, false, false},
    {"frontier", "2B", 3072, 16, 32, 8, 1.3, 1024, 32000, 131072, 1e5, &none, false, false},
    {"frontier", "5B", 4096, 16, 32, 8, 1.3, 1024, 32000, 131072, 1e5, &none, false, false},
    {"frontier", "7B", 4096, 32, 32, 8, 1.3, 1024, 32000, 131072, 1e5, &none, false, false},
    {"frontier", "1B", 2048, 16, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &none, false, false},
    {"frontier", "3B", 3072, 28, 24, 8, 1.3, 1024, 128256, 131072, 5e5, &none, false, false},
    {"frontier", "8B", 4096, 32, 32, 8, 1.3, 1024, 128256, 131072, 5e5, &none, false, false},
    {"frontier", "70B", 8192, 80, 64, 8, 1.3, 4096, 128256, 131072, 5e5, &none, false, false},
    {"frontier", "405B", 16384, 126, 128, 8, 1.2, 4096, 128256, 131072, 5e5, &none, false, false},
    {"mistral", "7B", 4096, 32, 32, 8, 1.3, 1024, 32768, 32768, 1e6, &none, false, false},
    {"qwen2.5", "0.5B", 896, 24, 14, 2, 2, 256, 151936, 32768, 1e6, &none, true, false},
    {"qwen2.5", "1.5B", 1536, 28, 12, 2, 2.15, 256, 151936, 131072, 1e6, &none, true, false},
    {"qwen2.5", "7B", 3584, 28, 28, 4, 1.97, 256, 152064, 131072, 1e6, &none, false, false},
    {"qwen3", "0.6B", 1024, 28, 16, 8, 1, 1024, 151936, 40960, 1e6, &none, true, false},
    {"qwen3", "1.7B", 2048, 28, 16, 8, 1, 1024, 151936, 40960, 1e6, &none, true, false},
    {"qwen3", "4B", 2560, 36, 32, 8, 1.4, 256, 151936, 40960, 1e6, &none, true, false},
    {"qwen3", "8B", 4096, 36, 32, 8, 1.1, 1024, 151936, 40960, 1e6, &none, false, false},
    {"qwen3", "14B", 5120, 40, 40, 8, 1.25, 1024, 151936, 40960, 1e6, &none, false, false},
    {"qwen3", "32B", 5120, 64, 64, 8, 1.85, 1024, 151936, 40960, 1e6, &none, false, false},
    {"olmo2", "1B", 2048, 16, 16, 16, 1.5, 256, 100352, 4096, 5e5, &none, false, false},
    {"olmo2", "7B", 4096, 32, 32, 32, 1, 256, 100352, 4096, 5e5, &none, false, false},
    {"olmo2", "13B", 5120, 40, 40, 40, 1, 256, 100352, 4096, 5e5, &none, false, false},
    {"olmo2", "32B", 5120, 64, 40, 8, 2, 1024, 100352, 4096, 5e5, &none, false, false},
    {"smollm3", "3B", 2048, 36, 16, 4, 2, 256, 128256, 65536, 5e6, &none, true, false},
};
enum { NUM_FLAVORS = sizeof flavors / sizeof flavors[0] };

/* Families of torchtitan and other programs that are not models of this kind, by prefix of their
 * names. */
static const struct {
    const char *begins, *difference;
} other_families[] = {
    {"llama4", "has experts and chunked attention"},
    {"qwen3_", "has experts, linear attention, or reads images"},
    {"qwen3-", "has experts, linear attention, or reads images"},
    {"qwen3.5", "has linear attention"},
    {"deepseek", "has latent attention and experts"},
    {"kimi", "has latent attention and experts"},
    {"gpt", "has LayerNorm and learned positions, or experts and attention sinks"},
    {"mixtral", "has experts"},
    {"gemma", "has other norms and activations"},
    {"flux", "generates images"},
    {"mamba", "is a state space model"},
};

/* Why a family is not one of ours; NULL: it is, or its name is unknown. */
static const char *family_difference(const char *family)
{
    for (size_t i = 0; i < sizeof other_families / sizeof *other_families; i++)
        if (!strncasecmp(family, other_families[i].begins, strlen(other_families[i].begins)))
            return other_families[i].difference;
    return NULL;
}

static enum status fail_flavor(const char *family, const char *name)
{
    const char *difference = family_difference(family);
    struct closest c = closest_to(family), size = closest_to(name);
    struct text sizes = {0};
    enum status st = STATUS_OK;
    for (int i = 0; i < NUM_FLAVORS; i++) {
        closest_offer(&c, flavors[i].family);
        if (strcmp(flavors[i].family, family)) continue;
        closest_offer(&size, flavors[i].name);
        text_addf(&sizes, "%s%s", sizes.len ? ", " : "", flavors[i].name);
    }
    if (size.name && !size.cost) /* 8b for 8B; of 9B or 80B the nearest size says little */
        FAIL_OUT(CONFIG,
                 "model.name = \"%s\", model.flavor = \"%s\": unknown size; did you mean \"%s\"?",
                 family, name, size.name);
    if (sizes.len)
        FAIL_OUT(CONFIG, "model.name = \"%s\", model.flavor = \"%s\": unknown size; expected %s",
                 family, name, sizes.data);
    if (!difference && c.name)
        FAIL_OUT(CONFIG, "model.name = \"%s\": unknown family; did you mean \"%s\"?", family,
                 c.name);
    FAIL_OUT(CONFIG,
             "model.name = \"%s\": not supported: %s %s; expected llama2, llama3, llama3.1, "
             "llama3.2, frontier, mistral, olmo2, qwen2.5, qwen3 or smollm3",
             family, family, difference ? difference : "is not a known family");
out:
    text_release(&sizes);
    return st;
}

static enum status find_flavor(const char *family, const char *name, const struct flavor **out)
{
    for (int i = 0; i < NUM_FLAVORS; i++) {
        *out = &flavors[i];
        if (!strcmp(flavors[i].family, family) && !strcmp(flavors[i].name, name)) return STATUS_OK;
    }
    return fail_flavor(family, name);
}

bool model_shape_masks_documents(const struct model_config *c)
{
    for (int i = 0; i < NUM_FLAVORS; i++)
        if (!strcmp(c->name, flavors[i].family) && !strcmp(c->flavor, flavors[i].name))
            return flavors[i].documents;
    return false;
}

static int ffn_hidden(const struct flavor *f, int64_t D)
{
    double hidden = floor(f->ffn_multiplier * floor(8.0 * (double)D / 3.0));
    hidden = ceil(hidden / f->ffn_multiple) * f->ffn_multiple;
    return hidden < INT_MAX ? (int)hidden : INT_MAX;
}

/* The option if it is set, else the preset, clamped to int: not every caller checks bounds. */
static int option_or(int64_t option, int64_t preset)
{
    int64_t v = option ? option : preset;
    return v > INT_MAX ? INT_MAX : v < INT_MIN ? INT_MIN : (int)v;
}

static double real_or(double option, double preset) { return option != 0 ? option : preset; }

/* The row length that a context is extended to. */
static int extended_context(int context, double factor)
{
    return context * factor < INT_MAX ? (int)(context * factor) : INT_MAX;
}

static enum status resolve_longrope(struct model_shape *s, const struct model_config *c)
{
    struct rope_scaling *r = &s->scaling;
    const size_t count = c->rope_short_factor.count;
    *r = (struct rope_scaling){.method = ROPE_longrope,
                               .original_context = option_or(c->rope_original_context, 0),
                               .attention_factor = c->rope_attention_factor};
    if (!c->rope_original_context || !count || count != c->rope_long_factor.count)
        FAIL(CONFIG,
             "model.rope_scaling = \"longrope\" requires model.rope_original_context, "
             "model.rope_short_factor (%zu numbers) and as many numbers in model.rope_long_factor "
             "(%zu)",
             count, c->rope_long_factor.count);
    if (count > ROPE_FACTORS)
        FAIL(CONFIG, "model.rope_short_factor has %zu numbers: at most %d are supported", count,
             ROPE_FACTORS);
    r->factor = real_or(c->rope_factor, (double)s->max_context / r->original_context);
    if (!c->rope_factor && r->factor < 1) r->factor = 1;
    r->num_factors = (int)count;
    memcpy(r->short_factors, c->rope_short_factor.items, count * sizeof(double));
    memcpy(r->long_factors, c->rope_long_factor.items, count * sizeof(double));
    return STATUS_OK;
}

/* "auto" keeps the flavor's scaling; the options of its parameters override. */
static enum status resolve_scaling(struct model_shape *s, const struct model_config *c,
                                   const struct flavor *f)
{
    static const enum rope_method methods[] = {[ROPE_SCALING_llama3] = ROPE_llama3,
                                               [ROPE_SCALING_linear] = ROPE_linear,
                                               [ROPE_SCALING_dynamic] = ROPE_dynamic,
                                               [ROPE_SCALING_yarn] = ROPE_yarn,
                                               [ROPE_SCALING_longrope] = ROPE_longrope};
    struct rope_scaling *r = &s->scaling;
    *r = *f->scaling;
    if (c->rope_scaling == ROPE_SCALING_none) *r = none;
    if (c->rope_scaling == ROPE_SCALING_llama3 && r->factor == 0) *r = llama31;
    if (c->rope_scaling > ROPE_SCALING_llama3)
        *r = (struct rope_scaling){.method = methods[c->rope_scaling],
                                   .factor = c->rope_factor,
                                   .original_context = s->max_context};
    if (c->rope_scaling == ROPE_SCALING_longrope) return resolve_longrope(s, c);
    if (c->rope_scaling > ROPE_SCALING_llama3 && c->rope_factor == 0)
        FAIL(CONFIG, "model.rope_scaling = \"%s\" requires model.rope_factor, at least 1",
             rope_scaling_kind_word(c->rope_scaling));
    if (r->factor == 0) return STATUS_OK;
    r->factor = real_or(c->rope_factor, r->factor);
    r->original_context = option_or(c->rope_original_context, r->original_context);
    if (r->method > ROPE_linear && !c->rope_original_context && r->factor > 1)
        s->max_context = extended_context(s->max_context, r->factor);
    if (r->method == ROPE_linear) r->original_context = 0;
    if (r->method == ROPE_llama3) {
        r->low_frequency_factor = real_or(c->rope_low_freq_factor, r->low_frequency_factor);
        r->high_frequency_factor = real_or(c->rope_high_freq_factor, r->high_frequency_factor);
    }
    if (r->method == ROPE_yarn) {
        r->beta_fast = real_or(c->rope_beta_fast, 32), r->beta_slow = real_or(c->rope_beta_slow, 1);
        r->attention_factor = c->rope_attention_factor;
    }
    return STATUS_OK;
}

/* cuBLASLt's fast kernels require rows of logits to be a multiple of 16 bytes; NVIDIA recommends
 * 128 for an A100.  Not 64 in a small vocabulary: embedding and head would grow visibly. */
static int preset_vocab_multiple(int V) { return V < 4096 ? 16 : 64; }

enum status model_shape_resolve(struct model_shape *s, const struct model_config *c,
                                int tokenizer_vocab_size)
{
    const struct flavor *f;
    const struct model_family *family = family_of(c->name);
    TRY(find_flavor(c->name, c->flavor, &f));
    *s = (struct model_shape){.D = option_or(c->dim, f->D), .L = option_or(c->n_layers, f->L)};
    s->H = option_or(c->n_heads, f->H);
    /* A flavor without GQA keeps one key/value head per query head when n_heads changes. */
    s->G = option_or(c->n_kv_heads, f->G == f->H ? s->H : f->G);
    if (!c->head_dim && !family->K && s->H > 0 && s->D % s->H)
        FAIL(CONFIG, "model.dim = %d is not a multiple of model.n_heads = %d; set model.head_dim",
             s->D, s->H);
    s->K = option_or(c->head_dim, family->K ? family->K : s->H > 0 ? s->D / s->H : 0);
    s->F = option_or(c->ffn_hidden, ffn_hidden(f, s->D));
    s->V = option_or(c->vocab_size, tokenizer_vocab_size ? tokenizer_vocab_size : f->V);
    s->rope_theta = c->rope_theta != 0 ? c->rope_theta : f->rope_theta;
    s->norm_eps = c->norm_eps != 0 ? c->norm_eps : family->norm_eps;
    s->max_context = option_or(c->max_context, f->max_context);
    TRY(resolve_scaling(s, c, f));
    s->tied = c->tie_embeddings == AUTO ? f->tied : c->tie_embeddings == YES;
    s->depth_init = c->depth_init != NO;
    s->post_norm = c->post_norm || family->post_norm;
    s->qk_norm = c->qk_norm || family->qk_norm || s->post_norm;
    const enum attention_bias biases = c->attention_bias ? c->attention_bias : family->biases;
    s->qkv_bias = biases == ATTENTION_BIAS_qkv || biases == ATTENTION_BIAS_all;
    s->out_bias = biases == ATTENTION_BIAS_all;
    s->mlp_bias = c->mlp_bias;
    s->window = option_or(c->sliding_window, 0);
    s->init = c->init;
    s->init_std = c->init_std;
    s->vocab_multiple = option_or(c->vocab_multiple, preset_vocab_multiple(s->V));
    s->partial_rotary_factor = c->partial_rotary_factor < 1 ? c->partial_rotary_factor : 0;
    s->no_rope_interval = option_or(c->no_rope_layer_interval, family->no_rope_interval);
    if (s->no_rope_interval > s->L) s->no_rope_interval = 0;
    model_shape_set_multipliers(s, c->embedding_multiplier, c->residual_multiplier,
                                c->attention_multiplier, c->logits_scaling);
    TRY(model_shape_check(s));
    return STATUS_OK;
}

/* Checks a model that only Phi-3 computes.  `extra` names a setting that Phi-3 does not have. */
static enum status check_phi3(const struct model_shape *s, const char *extra)
{
    const bool has_longrope = s->scaling.factor > 0 && s->scaling.method == ROPE_longrope;
    char key[64];
    if (s->partial_rotary_factor > 0)
        snprintf(key, sizeof key, "model.partial_rotary_factor = %g", s->partial_rotary_factor);
    else
        snprintf(key, sizeof key, "model.rope_scaling = \"longrope\"");
    const char *other = s->post_norm  ? "post_norm = true"
                        : s->qk_norm  ? "qk_norm = true"
                        : s->qkv_bias ? "attention_bias"
                        : s->mlp_bias ? "mlp_bias = true"
                                      : extra;
    if (other)
        FAIL(CONFIG,
             "%s with model.%s: no family of Transformers has both; Phi-3 has neither QK norm nor "
             "biases",
             key, other);
    if (s->scaling.factor > 0 && !has_longrope)
        FAIL(CONFIG,
             "%s with model.rope_scaling = \"%s\": no family of Transformers has both; Phi-3 has "
             "\"longrope\"",
             key, rope_method_name(&s->scaling));
    if (has_longrope && s->scaling.num_factors != model_shape_rotary_pairs(s))
        FAIL(CONFIG,
             "model.rope_short_factor and model.rope_long_factor have %d numbers: must be %d, one "
             "for each rotary pair of a head",
             s->scaling.num_factors, model_shape_rotary_pairs(s));
    const int heads = s->H * (s->num_slices ? s->num_slices : 1);
    if (has_longrope && heads * s->K != s->D)
        FAIL(CONFIG,
             "model.rope_scaling = \"longrope\" with %d heads of %d: must be as wide as model.dim "
             "= %d together, as Phi-3's",
             heads, s->K, s->D);
    return STATUS_OK;
}

/* A checkpoint is a model of a family of Transformers: settings of different ones do not
 * combine. */
static enum status check_settings(const struct model_shape *s)
{
    const bool only_qkv = s->qkv_bias && !s->out_bias;
    const char *norm = s->post_norm ? "model.post_norm = true" : "model.qk_norm = true";
    if (s->window && (s->qk_norm || s->qkv_bias || s->mlp_bias))
        FAIL(CONFIG,
             "model.sliding_window = %d with %s: no family of Transformers has both in all layers; "
             "Mistral has neither biases nor QK norm",
             s->window,
             s->qk_norm    ? norm
             : s->qkv_bias ? "model.attention_bias"
                           : "model.mlp_bias = true");
    if (s->mlp_bias && only_qkv)
        FAIL(CONFIG,
             "model.mlp_bias = true with model.attention_bias = \"qkv\": no family of Transformers "
             "has both; set model.attention_bias to \"all\" or \"none\"");
    if (s->qk_norm && (only_qkv || s->mlp_bias))
        FAIL(CONFIG,
             "%s with model.%s: no family of Transformers has both; Qwen3 and OLMo 2 can have "
             "model.attention_bias = \"all\"",
             norm, only_qkv ? "attention_bias = \"qkv\"" : "mlp_bias = true");
    const char *extra = s->no_rope_interval         ? "no_rope_layer_interval"
                        : model_shape_multiplies(s) ? "embedding_multiplier, residual_multiplier, "
                                                      "attention_multiplier or logits_scaling"
                                                    : NULL;
    if (extra && (s->qk_norm || only_qkv || s->window))
        FAIL(CONFIG, "%s with model.%s: no family of Transformers has both",
             s->window    ? "model.sliding_window"
             : s->qk_norm ? norm
                          : "model.attention_bias = \"qkv\"",
             extra);
    if (model_shape_is_phi3(s)) TRY(check_phi3(s, extra));
    if (s->no_rope_interval && model_shape_multiplies(s))
        FAIL(CONFIG,
             "model.no_rope_layer_interval = %d with model.embedding_multiplier, "
             "residual_multiplier, attention_multiplier or logits_scaling: no family of "
             "Transformers has both",
             s->no_rope_interval);
    return STATUS_OK;
}

void model_shape_set_multipliers(struct model_shape *s, double embedding, double residual,
                                 double attention, double logits)
{
    const float usual = 1 / sqrtf((float)s->K);
    const bool is_usual = !((float)attention < usual) && !((float)attention > usual);
    s->embedding_multiplier = embedding < 1 || embedding > 1 ? embedding : 0;
    s->residual_multiplier = residual < 1 || residual > 1 ? residual : 0;
    s->logits_scaling = logits < 1 || logits > 1 ? logits : 0;
    s->attention_multiplier = is_usual ? 0 : attention;
}

bool model_shape_multiplies(const struct model_shape *s)
{
    return s->embedding_multiplier > 0 || s->residual_multiplier > 0 ||
           s->attention_multiplier > 0 || s->logits_scaling > 0;
}

bool model_shape_is_phi3(const struct model_shape *s)
{
    return s->partial_rotary_factor > 0 ||
           (s->scaling.factor > 0 && s->scaling.method == ROPE_longrope);
}

int model_shape_rotary_pairs(const struct model_shape *s)
{
    return (s->partial_rotary_factor > 0 ? (int)(s->K * s->partial_rotary_factor) : s->K) / 2;
}

float model_shape_attention_scale(const struct model_shape *s)
{
    return s->attention_multiplier > 0 ? (float)s->attention_multiplier : 1 / sqrtf((float)s->K);
}

static enum status check_multipliers(const struct model_shape *s)
{
    const struct {
        const char *key;
        double value;
    } of[] = {{"embedding_multiplier", s->embedding_multiplier},
              {"residual_multiplier", s->residual_multiplier},
              {"attention_multiplier", s->attention_multiplier},
              {"logits_scaling", s->logits_scaling}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].value != 0 && !(of[i].value >= 1e-6 && of[i].value <= 1e6))
            FAIL(CONFIG, "model.%s = %g: must be between 1e-6 and 1e6", of[i].key, of[i].value);
    if (s->no_rope_interval < 0)
        FAIL(CONFIG, "model.no_rope_layer_interval = %d: must be at least 0", s->no_rope_interval);
    return STATUS_OK;
}

enum status model_shape_check(const struct model_shape *s)
{
    const struct {
        const char *key;
        int value, max;
    } bounds[] = {
        {"vocab_size", s->V, 1 << 28}, {"dim", s->D, 1 << 20},
        {"n_layers", s->L, 4096},      {"n_heads", s->H, 4096},
        {"n_kv_heads", s->G, 4096},    {"head_dim", s->K, 1024},
        {"ffn_hidden", s->F, 1 << 22}, {"max_context", s->max_context, INT_MAX},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < 1 || bounds[i].value > bounds[i].max)
            FAIL(CONFIG, "model.%s = %d: must be between 1 and %d", bounds[i].key, bounds[i].value,
                 bounds[i].max);
    if (s->H % s->G)
        FAIL(CONFIG, "model.n_heads = %d is not a multiple of model.n_kv_heads = %d", s->H, s->G);
    if (s->K % 2)
        FAIL(CONFIG,
             "model.head_dim = %d (model.dim = %d / model.n_heads = %d, if not set): must be even, "
             "since RoPE rotates pairs",
             s->K, s->D, s->H);
    if (s->partial_rotary_factor > 0 && (int)(s->K * s->partial_rotary_factor) % 2)
        FAIL(CONFIG,
             "model.partial_rotary_factor = %g: %d of %d coordinates of a head are an odd number: "
             "RoPE rotates pairs",
             s->partial_rotary_factor, (int)(s->K * s->partial_rotary_factor), s->K);
    if (!(s->partial_rotary_factor >= 0) || model_shape_rotary_pairs(s) < 1)
        FAIL(CONFIG, "model.partial_rotary_factor = %g: leaves no pair of %d coordinates to rotate",
             s->partial_rotary_factor, s->K);
    if (!(s->rope_theta > 1 && s->rope_theta <= 1e12))
        FAIL(CONFIG, "model.rope_theta = %g: must be above 1 and at most 1e12", s->rope_theta);
    if (!(s->norm_eps >= FLT_MIN && s->norm_eps <= 1)) /* kernels add it as a float */
        FAIL(CONFIG, "model.norm_eps = %g: must be from %g to 1", s->norm_eps, (double)FLT_MIN);
    TRY(check_settings(s));
    TRY(rope_scaling_check(&s->scaling));
    TRY(check_multipliers(s));
    if (s->scaling.method == ROPE_dynamic && s->K <= 2)
        FAIL(CONFIG, "model.rope_scaling = \"dynamic\" with a head size of %d: must be above 2",
             s->K);
    return STATUS_OK;
}

const char *model_shape_biases(const struct model_shape *s)
{
    return s->out_bias ? "all" : s->qkv_bias ? "qkv" : "none";
}

struct vocab_slice model_shape_vocab(const struct model_shape *s, int slice)
{
    if (!s->num_slices) return (struct vocab_slice){0, s->V, s->V};
    int each = s->V / s->num_slices, more = s->V % s->num_slices;
    int multiple = s->vocab_multiple ? s->vocab_multiple : 1;
    return (struct vocab_slice){.first = slice * each + (slice < more ? slice : more),
                                .tokens = each + (slice < more),
                                .rows = (each + (more > 0) + multiple - 1) / multiple * multiple};
}

struct model_shape model_shape_slice(const struct model_shape *s, int slice, int num_slices)
{
    struct model_shape cut = *s;
    BUG_IF(s->H % num_slices || (s->G % num_slices && num_slices % s->G) || s->F % num_slices ||
           s->V < num_slices);
    cut.H /= num_slices, cut.F /= num_slices;
    cut.G = num_slices > s->G ? 1 : s->G / num_slices;
    cut.slice = slice, cut.num_slices = num_slices;
    return cut;
}

void model_shape_write_json(const struct model_shape *s, struct json_writer *w)
{
    json_write_int(w, "dim", s->D);
    json_write_int(w, "n_layers", s->L);
    json_write_int(w, "n_heads", s->H);
    json_write_int(w, "n_kv_heads", s->G);
    json_write_int(w, "head_dim", s->K);
    json_write_int(w, "ffn_hidden", s->F);
    json_write_int(w, "vocab_size", s->V);
}
