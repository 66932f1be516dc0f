// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_config.h"

#include "base/json.h"
#include "checkpoint/interop/hf_extra.h"
#include "checkpoint/interop/hf_family.h"
#include "checkpoint/interop/hf_quantization.h"
#include "checkpoint/interop/hf_rope.h"
#include "checkpoint/interop/hf_value.h"

#include <math.h>
#include <string.h>
#include <strings.h>

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
    json_write_int(w, "max_position_embeddings", hf_rope_context(s));
}

void hf_config_write(const struct model_shape *s, const char *dtype, const struct hf_usage *u,
                     struct text *json)
{
    struct json_writer w = {.text = json};
    const struct hf_family *family = hf_family_of(s);
    const bool is_llama = family->windows == HF_WINDOWS_NONE && family->extra == HF_EXTRA_NONE;
    json_begin_object(&w, NULL, JSON_LINES);
    json_begin_array(&w, "architectures", JSON_INLINE);
    json_write_string(&w, NULL, family->architecture);
    json_end_array(&w);
    json_write_string(&w, "model_type", family->model_type);
    write_sizes(&w, s);
    json_write_real(&w, "rms_norm_eps", s->norm_eps);
    json_write_bool(&w, "tie_word_embeddings", s->tied);
    hf_rope_write(&w, s);
    json_write_string(&w, "hidden_act", "silu");
    if (family->biases >= HF_BIASES_ATTENTION) json_write_bool(&w, "attention_bias", s->out_bias);
    if (family->biases == HF_BIASES_BOTH) json_write_bool(&w, "mlp_bias", s->mlp_bias);
    if (family->windows == HF_WINDOWS_FLAG) json_write_bool(&w, "use_sliding_window", false);
    if (s->window)
        json_write_int(&w, "sliding_window", s->window);
    else if (family->windows == HF_WINDOWS_SIZE)
        json_write_null(&w, "sliding_window");
    hf_extra_write(&w, family, s);
    json_write_raw(&w, "attention_dropout", "0.0");
    json_write_raw(&w, "initializer_range", "0.02");
    if (is_llama) json_write_int(&w, "pretraining_tp", 1);
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

static enum status read_flag(const struct json *root, const char *key, bool *out)
{
    const struct json *v = json_get(root, key);
    if (v && !json_is_null(v) && !json_is_bool(v))
        FAIL(DATA, "\"%s\": expected true or false", key);
    *out = json_true(v);
    return STATUS_OK;
}

/* Each token attends to the last `sliding_window` ones.  A window of the whole context
 * is kept, too: it counts once rows are longer. */
static enum status read_window_size(const struct json *root, const struct hf_family *family,
                                    int *window)
{
    enum { DEFAULT_WINDOW = 4096 };
    const struct json *v = json_get(root, "sliding_window");
    if (v ? json_is_null(v) : family->windows == HF_WINDOWS_OPTIONAL) return STATUS_OK;
    TRY(hf_value_size(root, "sliding_window", DEFAULT_WINDOW, window));
    return STATUS_OK;
}

/* Rejects windows of some layers only, which are not implemented. */
static enum status read_windows(const struct json *root, const struct hf_family *family,
                                struct model_shape *s)
{
    const struct json *layers = json_get(root, "layer_types");
    bool has_window;
    if (family->windows == HF_WINDOWS_NONE) return STATUS_OK;
    if (family->windows >= HF_WINDOWS_SIZE) return read_window_size(root, family, &s->window);
    TRY(read_flag(root, "use_sliding_window", &has_window));
    if (has_window)
        FAIL(UNSUPPORTED, "\"use_sliding_window\" is true: sliding windows of some layers are not "
                          "supported");
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
    TRY(json_get_string(root, "model_type", &type));
    TRY(hf_family_find(type, family));
    const char *architecture = (*family)->architecture;
    for (const struct json *v = json_first(names); v; v = json_next(v))
        if (!json_is_string(v) || strcasecmp(json_string(v), architecture))
            FAIL(UNSUPPORTED, "architecture %s is not supported: must be %s",
                 json_is_string(v) ? json_string(v) : "(not a string)", architecture);
    TRY(hf_quantization_check(root));
    bool is_silu = json_string_is(act, "silu") || json_string_is(act, "swish"); /* synonyms */
    if (act && !is_silu)
        FAIL(UNSUPPORTED, "hidden_act \"%s\" is not supported: must be silu, also called swish",
             json_is_string(act) ? json_string(act) : "?");
    return STATUS_OK;
}

static enum status read_biases(const struct json *root, const struct hf_family *family,
                               struct model_shape *s)
{
    bool attention;
    TRY(read_flag(root, "attention_bias", &attention));
    TRY(read_flag(root, "mlp_bias", &s->mlp_bias));
    s->qkv_bias = attention || family->biases == HF_BIASES_QKV, s->out_bias = attention;
    if ((attention && family->biases < HF_BIASES_ATTENTION) ||
        (s->mlp_bias && family->biases != HF_BIASES_BOTH))
        FAIL(UNSUPPORTED, "\"%s_bias\" is true: %s does not have these biases",
             s->mlp_bias ? "mlp" : "attention", family->architecture);
    return STATUS_OK;
}

static enum status read_model(const struct json *root, struct model_shape *s)
{
    *s = (struct model_shape){.depth_init = true};
    const struct hf_family *family;
    TRY(check_supported(root, &family));
    s->qk_norm = family->qk_norm, s->post_norm = family->extra == HF_EXTRA_POST_NORM;
    s->rope_theta = family->rope_theta;
    TRY(read_biases(root, family, s));
    TRY(read_windows(root, family, s));
    TRY(hf_value_size(root, "hidden_size", 0, &s->D));
    TRY(hf_value_size(root, "intermediate_size", 0, &s->F));
    TRY(hf_value_size(root, "num_hidden_layers", 0, &s->L));
    TRY(hf_value_size(root, "num_attention_heads", 0, &s->H));
    bool has_heads = json_get(root, "num_key_value_heads"); /* null: as many as heads */
    const int kv_heads = family->kv_heads && !has_heads ? family->kv_heads : s->H;
    const int head_dim = family->head_dim ? family->head_dim : s->D / s->H ? s->D / s->H : 1;
    TRY(hf_value_size(root, "num_key_value_heads", kv_heads, &s->G));
    TRY(hf_value_size(root, "head_dim", head_dim, &s->K));
    TRY(hf_value_size(root, "vocab_size", 0, &s->V));
    TRY(hf_value_size(root, "max_position_embeddings", family->max_context, &s->max_context));
    TRY(hf_value_real(root, "rms_norm_eps", family->norm_eps, &s->norm_eps));
    TRY(read_flag(root, "tie_word_embeddings", &s->tied));
    s->tied |= family->is_tied && !json_get(root, "tie_word_embeddings");
    TRY(hf_extra_read(root, family, s));
    TRY(hf_rope_read(root, s));
    if (s->partial_rotary_factor > 0 && family->extra != HF_EXTRA_PHI3)
        FAIL(UNSUPPORTED, "partial_rotary_factor %g is not supported in a %s: must be 1",
             s->partial_rotary_factor, family->model_type);
    const bool is_longrope = s->scaling.method == ROPE_longrope;
    if (s->scaling.factor > 0 && is_longrope != (family->extra == HF_EXTRA_PHI3))
        FAIL(UNSUPPORTED, "rope type \"%s\" is not supported in a %s: must be %s",
             rope_method_name(&s->scaling), family->model_type,
             is_longrope ? "default, llama3, linear, dynamic or yarn" : "default or longrope");
    TRY(model_shape_check(s));
    return STATUS_OK;
}

enum status hf_config_read(const char *path, struct model_shape *s)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    enum status st = read_model(root, s);
    json_free(root);
    if (st) return status_prefix(st, "%s", path);
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
    TRY(hf_value_real(root, "mlm_probability", 0, &u->mlm_probability));
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
