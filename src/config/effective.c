// SPDX-License-Identifier: Apache-2.0
#include "config/effective.h"

#include <stdio.h>
#include <string.h>

/* Options that have no effect stay unset. */
static void fill_scaling(struct model_config *m, const struct rope_scaling *r)
{
    static const enum rope_scaling_kind kinds[] = {[ROPE_llama3] = ROPE_SCALING_llama3,
                                                   [ROPE_linear] = ROPE_SCALING_linear,
                                                   [ROPE_dynamic] = ROPE_SCALING_dynamic,
                                                   [ROPE_yarn] = ROPE_SCALING_yarn,
                                                   [ROPE_longrope] = ROPE_SCALING_longrope};
    m->rope_scaling = r->factor > 0 ? kinds[r->method] : ROPE_SCALING_none;
    m->rope_factor = r->factor, m->rope_original_context = r->original_context;
    m->rope_low_freq_factor = r->low_frequency_factor;
    m->rope_high_freq_factor = r->high_frequency_factor;
    m->rope_beta_fast = r->beta_fast, m->rope_beta_slow = r->beta_slow;
    m->rope_attention_factor = r->attention_factor;
}

void effective_fill(struct config *copy, const struct config *c)
{
    struct model_shape s;
    *copy = *c;
    if (model_shape_resolve(&s, &c->model, 0)) return; /* config_check and train report it */
    struct model_config *m = &copy->model;
    m->dim = s.D, m->n_layers = s.L, m->n_heads = s.H, m->n_kv_heads = s.G;
    m->head_dim = s.K, m->ffn_hidden = s.F;
    m->rope_theta = s.rope_theta, m->norm_eps = s.norm_eps;
    m->max_context = s.max_context, m->no_rope_layer_interval = s.no_rope_interval;
    fill_scaling(m, &s.scaling);
    m->tie_embeddings = s.tied ? YES : NO;
}

/* Options of [model] that a flavor decides, and what decides them first if it is set. */
static const struct {
    const char *key, *from;
} sizes[] = {
    {"model.dim", ""},
    {"model.n_layers", ""},
    {"model.n_heads", ""},
    {"model.n_kv_heads", ""},
    {"model.head_dim", "dim / n_heads"},
    {"model.ffn_hidden", "the flavor's formula, from dim"},
    {"model.rope_theta", ""},
    {"model.norm_eps", ""},
    {"model.rope_scaling", ""},
    {"model.rope_factor", ""},
    {"model.rope_original_context", ""},
    {"model.rope_low_freq_factor", ""},
    {"model.rope_high_freq_factor", ""},
    {"model.rope_beta_fast", ""},
    {"model.rope_beta_slow", ""},
    {"model.rope_attention_factor", ""},
    {"model.max_context", ""},
    {"model.no_rope_layer_interval", ""},
    {"model.tie_embeddings", ""},
};

const char *effective_origin(const struct config *c, const char *key, char *buffer, size_t size)
{
    const char *origin = config_key_origin(c, key);
    struct model_shape s;
    if (strcmp(origin, "default") != 0 || model_shape_resolve(&s, &c->model, 0)) return origin;
    if (!strcmp(key, "model.vocab_size")) return "the tokenizer's";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bool is_derived = sizes[i].from[0] && (c->model.dim || !strcmp(key, "model.head_dim"));
        if (strcmp(key, sizes[i].key) != 0) continue;
        if (is_derived)
            snprintf(buffer, size, "derived: %s", sizes[i].from);
        else
            snprintf(buffer, size, "flavor \"%.40s\" of \"%.40s\"", c->model.flavor, c->model.name);
        return buffer;
    }
    return origin;
}
