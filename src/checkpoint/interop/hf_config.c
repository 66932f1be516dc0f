// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_config.h"

#include "base/json.h"
#include "checkpoint/interop/hf_family.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static void write_rope(struct json_writer *w, const char *key, const struct model_shape *s,
                       bool with_theta)
{
    json_begin_object(w, key, JSON_INLINE);
    if (with_theta) json_write_real(w, "rope_theta", s->rope_theta);
    json_write_string(w, "rope_type", s->scaling.factor > 0 ? "llama3" : "default");
    if (s->scaling.factor > 0) {
        json_write_real(w, "factor", s->scaling.factor);
        json_write_real(w, "low_freq_factor", s->scaling.low_frequency_factor);
        json_write_real(w, "high_freq_factor", s->scaling.high_frequency_factor);
        json_write_int(w, "original_max_position_embeddings", s->scaling.original_context);
    }
    json_end_object(w);
}

static void write_id(struct json_writer *w, const char *key, int id)
{
    if (id < 0)
        json_write_null(w, key);
    else
        json_write_int(w, key, id);
}

static void write_sizes(struct json_writer *w, const struct model_shape *s)
{
    json_write_int(w, "hidden_size", s->D);
    json_write_int(w, "intermediate_size", s->F);
    json_write_int(w, "num_hidden_layers", s->L);
    json_write_int(w, "num_attention_heads", s->H);
    json_write_int(w, "num_key_value_heads", s->G);
    json_write_int(w, "head_dim", s->K);
    json_write_int(w, "vocab_size", s->V);
    json_write_int(w, "max_position_embeddings", s->max_context);
}

void hf_config_write(const struct model_shape *s, const char *dtype, const struct hf_usage *u,
                     struct text *json)
{
    struct json_writer w = {.text = json};
    const struct hf_family *family = hf_family_of(s);
    const bool is_qwen3 = family->windows == HF_WINDOWS_FLAG;
    json_begin_object(&w, NULL, JSON_LINES);
    json_begin_array(&w, "architectures", JSON_INLINE);
    json_write_string(&w, NULL, family->architecture);
    json_end_array(&w);
    json_write_string(&w, "model_type", family->model_type);
    write_sizes(&w, s);
    json_write_real(&w, "rms_norm_eps", s->norm_eps);
    json_write_bool(&w, "tie_word_embeddings", s->tied);
    json_write_real(&w, "rope_theta", s->rope_theta);
    if (s->scaling.factor > 0)
        write_rope(&w, "rope_scaling", s, false);
    else
        json_write_null(&w, "rope_scaling");
    write_rope(&w, "rope_parameters", s, true);
    json_write_string(&w, "hidden_act", "silu");
    json_write_bool(&w, "attention_bias", false);
    json_write_bool(&w, is_qwen3 ? "use_sliding_window" : "mlp_bias", false);
    json_write_raw(&w, "attention_dropout", "0.0");
    json_write_raw(&w, "initializer_range", "0.02");
    if (!is_qwen3) json_write_int(&w, "pretraining_tp", 1);
    json_write_bool(&w, "use_cache", true);
    if (u->is_causal) json_write_bool(&w, "is_causal", u->is_causal == HF_CAUSAL_TRUE);
    if (u->is_diffusion) json_write_bool(&w, "masked_diffusion", true);
    if (u->mlm_probability > 0) json_write_real(&w, "mlm_probability", u->mlm_probability);
    write_id(&w, "bos_token_id", u->bos);
    write_id(&w, "eos_token_id", u->eos);
    json_write_string(&w, "torch_dtype", dtype);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}

static enum status read_size(const struct json *root, const char *key, int64_t fallback, int *out)
{
    int64_t value = fallback;
    const struct json *v = json_get(root, key);
    if ((v && !json_is_null(v)) || fallback < 1) TRY(json_get_int(root, key, 1, INT32_MAX, &value));
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_real(const struct json *object, const char *key, double fallback,
                             double *out)
{
    const struct json *v = json_get(object, key);
    *out = v && json_is_number(v) ? json_number(v) : fallback;
    if (v && !json_is_null(v) && !json_is_number(v)) FAIL(DATA, "\"%s\": expected a number", key);
    if (!isfinite(*out) || *out < 0)
        FAIL(DATA, "\"%s\": %g is out of range: must be at least 0 and finite", key, *out);
    return STATUS_OK;
}

/* Reads a number that has no default. */
static enum status read_required_real(const struct json *object, const char *key, double *out)
{
    if (!json_is_number(json_get(object, key))) FAIL(DATA, "\"%s\": expected a number", key);
    TRY(read_real(object, key, 0, out));
    return STATUS_OK;
}

static enum status read_flag(const struct json *root, const char *key, bool *out)
{
    const struct json *v = json_get(root, key);
    if (v && !json_is_null(v) && !json_is_bool(v))
        FAIL(DATA, "\"%s\": expected true or false", key);
    *out = json_true(v);
    return STATUS_OK;
}

/* An object with the RoPE scaling; NULL: the model has none under this key. */
static enum status find_rope(const struct json *root, const char *key, const struct json **rope)
{
    const struct json *v = json_get(root, key);
    *rope = json_is_object(v) ? v : NULL;
    if (v && !json_is_null(v) && !*rope) FAIL(DATA, "\"%s\": expected an object", key);
    return STATUS_OK;
}

static enum status read_rope_type(const struct json *rope, const char **type)
{
    const struct json *name = json_get(rope, "rope_type");
    if (!name) name = json_get(rope, "type");
    if (name && !json_is_string(name)) FAIL(DATA, "\"rope_type\": expected a string");
    *type = name ? json_string(name) : "default";
    return STATUS_OK;
}

static enum status read_scaling(const struct json *root, const struct json *rope,
                                struct model_shape *s)
{
    const char *type;
    double partial;
    TRY(read_rope_type(rope, &type));
    TRY(read_real(root, "rope_theta", 10000, &s->rope_theta));
    TRY(read_real(rope, "rope_theta", s->rope_theta, &s->rope_theta));
    TRY(read_real(root, "partial_rotary_factor", 1, &partial));
    TRY(read_real(rope, "partial_rotary_factor", partial, &partial));
    if (partial < 1 || partial > 1)
        FAIL(UNSUPPORTED, "partial_rotary_factor %g is not supported: must be 1", partial);
    s->scaling = (struct rope_scaling){0};
    if (!strcmp(type, "default")) return STATUS_OK;
    if (strcmp(type, "llama3"))
        FAIL(UNSUPPORTED, "rope type \"%s\" is not supported: must be default or llama3", type);
    TRY(read_required_real(rope, "factor", &s->scaling.factor));
    TRY(read_required_real(rope, "low_freq_factor", &s->scaling.low_frequency_factor));
    TRY(read_required_real(rope, "high_freq_factor", &s->scaling.high_frequency_factor));
    TRY(read_size(rope, "original_max_position_embeddings", 0, &s->scaling.original_context));
    return STATUS_OK;
}

static bool is_same_number(double a, double b) { return !(a < b) && !(a > b); }

/* Fails if the model is described twice, as two models. */
static enum status compare_ropes(const struct json *root, const struct json *before,
                                 const struct json *now)
{
    const char *types[2];
    struct model_shape a = {0}, b = {0};
    TRY(read_rope_type(before, &types[0]));
    TRY(read_rope_type(now, &types[1]));
    bool is_same = !strcmp(types[0], types[1]);
    if (is_same) {
        TRY(read_scaling(root, before, &a));
        TRY(read_scaling(root, now, &b));
        const struct rope_scaling *x = &a.scaling, *y = &b.scaling;
        is_same = is_same_number(x->factor, y->factor) &&
                  is_same_number(x->low_frequency_factor, y->low_frequency_factor) &&
                  is_same_number(x->high_frequency_factor, y->high_frequency_factor) &&
                  x->original_context == y->original_context;
        if (json_get(before, "rope_theta")) is_same &= is_same_number(a.rope_theta, b.rope_theta);
    }
    if (!is_same)
        FAIL(DATA, "\"rope_parameters\" and \"rope_scaling\" describe different models: remove the "
                   "one that the weights were not trained with");
    return STATUS_OK;
}

/* "rope_parameters" since Transformers 5, "rope_scaling" before. */
static enum status read_rope(const struct json *root, struct model_shape *s)
{
    const struct json *before, *now;
    TRY(find_rope(root, "rope_scaling", &before));
    TRY(find_rope(root, "rope_parameters", &now));
    if (before && now) TRY(compare_ropes(root, before, now));
    return read_scaling(root, now ? now : before, s);
}

/* Keys of Mistral: each token attends to the last `sliding_window` ones. */
static enum status check_window_size(const struct json *root, const struct hf_family *family)
{
    enum { DEFAULT_WINDOW = 4096 };
    const struct json *v = json_get(root, "sliding_window");
    int window, context;
    if (v && json_is_null(v)) return STATUS_OK;
    TRY(read_size(root, "sliding_window", DEFAULT_WINDOW, &window));
    TRY(read_size(root, "max_position_embeddings", family->max_context, &context));
    if (window < context)
        FAIL(
            UNSUPPORTED,
            "\"sliding_window\" is %d%s, less than \"max_position_embeddings\" %d: sliding windows "
            "are not supported",
            window, v ? "" : " by default", context);
    return STATUS_OK;
}

/* Rejects sliding windows, which are not implemented. */
static enum status check_windows(const struct json *root, const struct hf_family *family)
{
    const struct json *layers = json_get(root, "layer_types");
    bool has_window;
    if (family->windows == HF_WINDOWS_NONE) return STATUS_OK;
    if (family->windows == HF_WINDOWS_SIZE) return check_window_size(root, family);
    TRY(read_flag(root, "use_sliding_window", &has_window));
    if (has_window)
        FAIL(UNSUPPORTED, "\"use_sliding_window\" is true: sliding windows are not supported");
    for (const struct json *v = json_first(layers); v; v = json_next(v))
        if (!json_is_string(v) || strcmp(json_string(v), "full_attention"))
            FAIL(UNSUPPORTED, "\"layer_types\" has %s: must be full_attention",
                 json_is_string(v) ? json_string(v) : "(not a string)");
    return STATUS_OK;
}

/* Rejects settings that would change the arithmetic and are not implemented here. */
static enum status check_supported(const struct json *root, const struct hf_family **family)
{
    const struct json *names = json_get(root, "architectures"), *act = json_get(root, "hidden_act");
    const char *type;
    bool attention_bias, mlp_bias;
    TRY(json_get_string(root, "model_type", &type));
    TRY(hf_family_find(type, family));
    const char *architecture = (*family)->architecture;
    for (const struct json *v = json_first(names); v; v = json_next(v))
        if (!json_is_string(v) || strcasecmp(json_string(v), architecture))
            FAIL(UNSUPPORTED, "architecture %s is not supported: must be %s",
                 json_is_string(v) ? json_string(v) : "(not a string)", architecture);
    TRY(check_windows(root, *family));
    bool is_silu = json_string_is(act, "silu") || json_string_is(act, "swish"); /* synonyms */
    if (act && !is_silu)
        FAIL(UNSUPPORTED, "hidden_act \"%s\" is not supported: must be silu, also called swish",
             json_is_string(act) ? json_string(act) : "?");
    TRY(read_flag(root, "attention_bias", &attention_bias));
    TRY(read_flag(root, "mlp_bias", &mlp_bias));
    if (attention_bias || mlp_bias)
        FAIL(UNSUPPORTED, "\"%s_bias\" is true: biases are not supported",
             attention_bias ? "attention" : "mlp");
    return STATUS_OK;
}

static enum status read_model(const struct json *root, struct model_shape *s)
{
    *s = (struct model_shape){.depth_init = true};
    const struct hf_family *family;
    TRY(check_supported(root, &family));
    s->qk_norm = family->qk_norm;
    TRY(read_size(root, "hidden_size", 0, &s->D));
    TRY(read_size(root, "intermediate_size", 0, &s->F));
    TRY(read_size(root, "num_hidden_layers", 0, &s->L));
    TRY(read_size(root, "num_attention_heads", 0, &s->H));
    bool has_heads = json_get(root, "num_key_value_heads"); /* null: as many as heads */
    const int kv_heads = family->kv_heads && !has_heads ? family->kv_heads : s->H;
    const int head_dim = family->head_dim ? family->head_dim : s->D / s->H ? s->D / s->H : 1;
    TRY(read_size(root, "num_key_value_heads", kv_heads, &s->G));
    TRY(read_size(root, "head_dim", head_dim, &s->K));
    TRY(read_size(root, "vocab_size", 0, &s->V));
    TRY(read_size(root, "max_position_embeddings", family->max_context, &s->max_context));
    TRY(read_real(root, "rms_norm_eps", 1e-6, &s->norm_eps));
    TRY(read_flag(root, "tie_word_embeddings", &s->tied));
    TRY(read_rope(root, s));
    TRY(model_shape_check(s));
    return STATUS_OK;
}

enum status hf_config_read(const char *path, struct model_shape *s)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    enum status st = read_model(root, s);
    json_free(root);
    if (st) return status_fail(st, __FILE__, __LINE__, "%s: %s", path, status_message());
    return STATUS_OK;
}

static int first_id(const struct json *v)
{
    int64_t id;
    if (json_is_array(v)) v = json_first(v);
    return json_as_int(v, 0, INT32_MAX, &id) ? (int)id : -1;
}

static enum status read_usage(const struct json *root, struct hf_usage *u)
{
    const struct json *causal = json_get(root, "is_causal");
    bool is_causal;
    *u = (struct hf_usage){.bos = first_id(json_get(root, "bos_token_id")),
                           .eos = first_id(json_get(root, "eos_token_id"))};
    TRY(read_flag(root, "is_causal", &is_causal));
    if (json_is_bool(causal)) u->is_causal = is_causal ? HF_CAUSAL_TRUE : HF_CAUSAL_FALSE;
    TRY(read_flag(root, "masked_diffusion", &u->is_diffusion));
    TRY(read_real(root, "mlm_probability", 0, &u->mlm_probability));
    if (u->mlm_probability > 1)
        FAIL(DATA, "\"mlm_probability\": %g is out of range: must be at most 1",
             u->mlm_probability);
    return STATUS_OK;
}

enum status hf_config_read_usage(const char *path, struct hf_usage *u)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    enum status st = read_usage(root, u);
    json_free(root);
    if (st) return status_prefix(st, "%s", path);
    return STATUS_OK;
}
