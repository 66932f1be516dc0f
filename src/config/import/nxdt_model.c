// SPDX-License-Identifier: Apache-2.0
#include "config/import/nxdt_model.h"

#include "base/file.h"
#include "config/import/rules.h"

/* Without config.json: guesses the Llama model from the sizes in the YAML. */
static enum status guess_model(struct import *im, const struct import_item *config)
{
    static const struct {
        int64_t dim;
        bool is_llama3; /* has a larger rope_theta */
        const char *name, *flavor;
    } known[] = {{4096, true, "llama3.1", "8B"},    {8192, true, "llama3.1", "70B"},
                 {16384, true, "llama3.1", "405B"}, {4096, false, "llama2", "7B"},
                 {5120, false, "llama2", "13B"},    {8192, false, "llama2", "70B"}};
    int64_t dim, positions;
    double theta = 0;
    const struct import_item *rope = import_get(im, "model.rope_theta");
    TRY(import_get_int(im, "model.hidden_size", 0, &dim));
    TRY(import_get_int(im, "model.max_position_embeddings", 0, &positions));
    if (rope) TRY(import_parse_real(im, rope, &theta));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].dim != dim || known[i].is_llama3 != (theta > 1e5)) continue;
        TRY(import_set(im, config, "model.name", known[i].name,
                       config ? "config.json was not found. The sizes are guessed from "
                                "hidden_size and rope_theta; check them."
                              : ""));
        TRY(import_set(im, config, "model.flavor", known[i].flavor, ""));
        return import_set(im, import_get(im, "model.max_position_embeddings"), "model.rope_scaling",
                          known[i].is_llama3 && positions > 8192 ? "llama3" : "none",
                          "Llama 3.1 scales RoPE, Llama 3 does not.");
    }
    FAIL(
        CONFIG,
        "%s: hidden_size = %lld with rope_theta = %g: unknown Llama model; provide the config.json "
        "that model.model_config names",
        im->file, (long long)dim, theta);
}

/* position_freq_base times position_abf_factor is the base, positition_interpolation_factor (sic)
 * divides positions; NxD Training's Megatron model does not read rope_theta. */
static enum status set_megatron_rope(struct import *im)
{
    const struct import_item *theta = import_get(im, "model.rope_theta");
    const struct import_item *base = import_get(im, "model.position_freq_base");
    const struct import_item *abf = import_get(im, "model.position_abf_factor");
    const struct import_item *linear = import_get(im, "model.positition_interpolation_factor");
    double start = 10000, times = 1, stretch = 1;
    if (base) TRY(import_parse_real(im, base, &start));
    if (abf) TRY(import_parse_real(im, abf, &times));
    if (linear) TRY(import_parse_real(im, linear, &stretch));
    if (stretch != 0 && stretch < 1) return import_bad_value(im, linear, "at least 1");
    if (theta)
        import_add_note(im, IMPORT_ORIGINAL_BUG, theta,
                        "NxD Training's Megatron model does not read rope_theta: its base is "
                        "position_freq_base times position_abf_factor, by default 10000.");
    if (!theta)
        TRY(import_set_real(im, base ? base : abf, "model.rope_theta", start * times,
                            base || abf ? "position_freq_base times position_abf_factor."
                                        : "The default of NxD Training."));
    if (stretch <= 1) return STATUS_OK;
    TRY(import_set(im, linear, "model.rope_scaling", "linear", ""));
    return import_copy(im, linear, "model.rope_factor", "");
}

static enum status set_megatron_model(struct import *im)
{
    static const char *const defaults[][2] = {
        {"model.activation", "GELU by default; a Llama has SwiGLU"},
        {"model.normalization", "LayerNorm by default; a Llama has RMSNorm"},
        {"model.position_embedding_type", "learned positions by default; a Llama uses RoPE"},
        {"model.hidden_dropout", "0.1 by default; dropout is not supported"}};
    const struct import_item *biases = import_get(im, "model.has_bias");
    const struct import_item *heads = import_get(im, "model.num_attention_heads");
    bool has_biases;
    TRY(import_get_bool(im, "model.has_bias", true, &has_biases));
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!import_get(im, defaults[i][0]))
            import_refuse_default(im, defaults[i][0], defaults[i][1]);
    TRY(import_set(im, NULL, "model.name", "llama2", "The sizes are set below."));
    TRY(import_set(im, NULL, "model.flavor", "7B", ""));
    if (heads && !import_get(im, "model.num_kv_heads"))
        TRY(import_copy(im, heads, "model.n_kv_heads", "The default of num_kv_heads."));
    if (!import_get(im, "model.share_embeddings_and_output_weights"))
        TRY(import_set(im, NULL, "model.tie_embeddings", "true",
                       "The default of share_embeddings_and_output_weights."));
    if (biases && !has_biases) import_add_note(im, IMPORT_IGNORED, biases, "same here");
    if (has_biases) {
        TRY(import_set(im, biases, "model.attention_bias", "all",
                       biases ? "" : "The default of has_bias."));
        TRY(import_set(im, biases, "model.mlp_bias", "true", ""));
    }
    return set_megatron_rope(im);
}

enum status nxdt_model_set(struct import *im, bool hf)
{
    const struct import_item *config = import_get(im, "model.model_config");
    const struct import_item *layers = import_get(im, "model.num_layers");
    const struct import_item *dim = import_get(im, "model.hidden_size");
    const struct import_item *rope = import_get(im, "model.rope_theta");
    const struct import_item *std = import_get(im, "model.init_method_std");
    bool scaled;
    TRY(import_get_bool(im, "model.use_scaled_init_method", !hf, &scaled));
    if (!std) std = import_get(im, "model.initializer_range");
    rules_require_llama(im, "model.activation", "swiglu", "its activation is SwiGLU");
    rules_require_llama(im, "model.normalization", "rmsnorm", "its normalization is RMSNorm");
    rules_require_llama(im, "model.position_embedding_type", "rope", "it uses RoPE");
    if (config && config->count == 1 && file_exists(config->values[0]))
        TRY(rules_set_model_from_json(im, config, config->values[0]));
    else if (hf)
        TRY(guess_model(im, config));
    else
        TRY(set_megatron_model(im));
    if (layers) TRY(import_copy(im, layers, "model.n_layers", ""));
    if (dim) TRY(import_copy(im, dim, "model.dim", ""));
    if (rope) TRY(import_copy(im, rope, "model.rope_theta", ""));
    TRY(import_set(im, import_get(im, "model.use_scaled_init_method"), "model.init",
                   scaled ? "megatron" : "normal", ""));
    return std ? import_copy(im, std, "model.init_std", "") : STATUS_OK;
}

enum status nxdt_model_set_window(struct import *im, bool hf)
{
    const struct import_item *item = import_get(im, "model.sliding_window_size");
    int64_t window;
    if (!item) return STATUS_OK;
    TRY(import_parse_int(im, item, 0, 1LL << 40, &window));
    if (hf || !window || window >= im->config.training.seq_len) {
        import_add_note(im, IMPORT_IGNORED, item,
                        hf        ? "only read with model_source = megatron"
                        : !window ? "no window"
                                  : "the window covers the whole sequence");
        return STATUS_OK;
    }
    import_add_note(im, IMPORT_ORIGINAL_BUG, item,
                    "NxD Training defines a mask for this window, but does not apply it, and then "
                    "has no causal mask, either. Here each token attends to this many.");
    return import_set_int(im, item, "model.sliding_window", window, "");
}
