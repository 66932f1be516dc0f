// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_config.h"

#include "base/json.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static void write_rope(const struct model_shape *s, bool with_theta, struct text *json)
{
    bool scaled = s->scaling.factor > 0;
    text_adds(json, "{");
    if (with_theta) text_addf(json, "\"rope_theta\": %.17g, ", s->rope_theta);
    text_addf(json, "\"rope_type\": \"%s\"", scaled ? "llama3" : "default");
    if (scaled)
        text_addf(json,
                  ", \"factor\": %.17g, \"low_freq_factor\": %.17g, \"high_freq_factor\": %.17g, "
                  "\"original_max_position_embeddings\": %d",
                  s->scaling.factor, s->scaling.low_frequency_factor,
                  s->scaling.high_frequency_factor, s->scaling.original_context);
    text_adds(json, "}");
}

static void write_id(const char *key, int id, struct text *json)
{
    if (id < 0)
        text_addf(json, "  \"%s\": null,\n", key);
    else
        text_addf(json, "  \"%s\": %d,\n", key, id);
}

void hf_config_write(const struct model_shape *s, const char *dtype, int bos, int eos,
                     struct text *json)
{
    text_adds(json,
              "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n");
    text_addf(json,
              "  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n"
              "  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n"
              "  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n  \"vocab_size\": %d,\n"
              "  \"max_position_embeddings\": %d,\n",
              s->D, s->F, s->L, s->H, s->G, s->K, s->V, s->max_context);
    text_addf(json, "  \"rms_norm_eps\": %.17g,\n  \"tie_word_embeddings\": %s,\n", s->norm_eps,
              s->tied ? "true" : "false");
    text_addf(json, "  \"rope_theta\": %.17g,\n  \"rope_scaling\": ", s->rope_theta);
    if (s->scaling.factor > 0)
        write_rope(s, false, json);
    else
        text_adds(json, "null");
    text_adds(json, ",\n  \"rope_parameters\": ");
    write_rope(s, true, json);
    text_adds(json, ",\n  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n"
                    "  \"mlp_bias\": false,\n  \"attention_dropout\": 0.0,\n"
                    "  \"initializer_range\": 0.02,\n  \"pretraining_tp\": 1,\n"
                    "  \"use_cache\": true,\n");
    write_id("bos_token_id", bos, json);
    write_id("eos_token_id", eos, json);
    text_addf(json, "  \"torch_dtype\": \"%s\"\n}\n", dtype);
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

/* The object with the RoPE scaling: "rope_parameters" since Transformers 5, "rope_scaling"
 * before. */
static enum status find_rope(const struct json *root, const struct json **rope, const char **type)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    *rope = NULL;
    *type = "default";
    for (int i = 0; i < 2; i++) {
        const struct json *v = json_get(root, keys[i]);
        if (v && !json_is_null(v) && !json_is_object(v))
            FAIL(DATA, "\"%s\": expected an object", keys[i]);
        if (json_is_object(v)) *rope = v;
    }
    const struct json *name = json_get(*rope, "rope_type");
    if (!name) name = json_get(*rope, "type");
    if (name && !json_is_string(name)) FAIL(DATA, "\"rope_type\": expected a string");
    if (name) *type = json_string(name);
    return STATUS_OK;
}

static enum status read_rope(const struct json *root, struct model_shape *s)
{
    const struct json *rope;
    const char *type;
    double partial;
    TRY(find_rope(root, &rope, &type));
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

/* Rejects settings that would change the arithmetic and are not implemented here. */
static enum status check_supported(const struct json *root)
{
    const struct json *names = json_get(root, "architectures"), *act = json_get(root, "hidden_act");
    const char *type;
    bool attention_bias, mlp_bias;
    TRY(json_get_string(root, "model_type", &type));
    if (strcmp(type, "llama"))
        FAIL(UNSUPPORTED, "model_type \"%s\" is not supported: must be llama", type);
    for (const struct json *v = json_first(names); v; v = json_next(v))
        if (!json_is_string(v) || strcasecmp(json_string(v), "LlamaForCausalLM"))
            FAIL(UNSUPPORTED, "architecture %s is not supported: must be LlamaForCausalLM",
                 json_is_string(v) ? json_string(v) : "(not a string)");
    if (act && (!json_is_string(act) || strcmp(json_string(act), "silu")))
        FAIL(UNSUPPORTED, "hidden_act \"%s\" is not supported: must be silu",
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
    TRY(check_supported(root));
    TRY(read_size(root, "hidden_size", 0, &s->D));
    TRY(read_size(root, "intermediate_size", 0, &s->F));
    TRY(read_size(root, "num_hidden_layers", 0, &s->L));
    TRY(read_size(root, "num_attention_heads", 0, &s->H));
    TRY(read_size(root, "num_key_value_heads", s->H, &s->G));
    TRY(read_size(root, "head_dim", s->D / s->H ? s->D / s->H : 1, &s->K));
    TRY(read_size(root, "vocab_size", 0, &s->V));
    TRY(read_size(root, "max_position_embeddings", 2048, &s->max_context));
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

enum status hf_config_ids(const char *path, int *bos, int *eos)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    *bos = first_id(json_get(root, "bos_token_id"));
    *eos = first_id(json_get(root, "eos_token_id"));
    json_free(root);
    return STATUS_OK;
}
