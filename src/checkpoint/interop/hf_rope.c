// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_rope.h"

#include "checkpoint/interop/hf_value.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static void write_factors(struct json_writer *w, const char *key, const double *factors, int count)
{
    json_begin_array(w, key, JSON_INLINE);
    for (int j = 0; j < count; j++) json_write_real(w, NULL, factors[j]);
    json_end_array(w);
}

/* Versions before 5 accept only the type and the factors, and compute the factor. */
static void write_longrope(struct json_writer *w, const struct model_shape *s, bool is_new)
{
    const struct rope_scaling *r = &s->scaling;
    write_factors(w, "short_factor", r->short_factors, r->num_factors);
    write_factors(w, "long_factor", r->long_factors, r->num_factors);
    const double ratio = (double)s->max_context / r->original_context;
    if (is_new || r->factor < ratio || r->factor > ratio) json_write_real(w, "factor", r->factor);
    if (r->attention_factor > 0) json_write_real(w, "attention_factor", r->attention_factor);
    if (is_new) json_write_int(w, "original_max_position_embeddings", r->original_context);
}

static void write_object(struct json_writer *w, const char *key, const struct model_shape *s,
                         bool with_theta)
{
    const struct rope_scaling *r = &s->scaling;
    const bool scales = r->factor > 0;
    json_begin_object(w, key, JSON_INLINE);
    if (with_theta) json_write_real(w, "rope_theta", s->rope_theta);
    const bool is_longrope = scales && r->method == ROPE_longrope;
    json_write_string(w, is_longrope && !with_theta ? "type" : "rope_type", rope_method_name(r));
    if (with_theta && s->partial_rotary_factor > 0)
        json_write_real(w, "partial_rotary_factor", s->partial_rotary_factor);
    if (is_longrope) write_longrope(w, s, with_theta);
    if (scales && !is_longrope) json_write_real(w, "factor", r->factor);
    if (scales && r->method == ROPE_llama3) {
        json_write_real(w, "low_freq_factor", r->low_frequency_factor);
        json_write_real(w, "high_freq_factor", r->high_frequency_factor);
    }
    if (scales && r->method == ROPE_yarn) {
        json_write_real(w, "beta_fast", r->beta_fast);
        json_write_real(w, "beta_slow", r->beta_slow);
        if (r->attention_factor > 0) json_write_real(w, "attention_factor", r->attention_factor);
    }
    if (scales && (r->method == ROPE_llama3 || r->method == ROPE_yarn))
        json_write_int(w, "original_max_position_embeddings", r->original_context);
    json_end_object(w);
}

static void write_scaling(struct json_writer *w, const struct model_shape *s)
{
    if (s->scaling.factor > 0)
        write_object(w, "rope_scaling", s, false);
    else
        json_write_null(w, "rope_scaling");
}

void hf_rope_write(struct json_writer *w, const struct model_shape *s)
{
    json_write_real(w, "rope_theta", s->rope_theta);
    if (s->partial_rotary_factor > 0) /* older versions read it here */
        json_write_real(w, "partial_rotary_factor", s->partial_rotary_factor);
    if (s->scaling.factor > 0 && s->scaling.method == ROPE_longrope)
        json_write_int(w, "original_max_position_embeddings", s->scaling.original_context);
    write_scaling(w, s);
    write_object(w, "rope_parameters", s, true);
}

static bool is_dynamic(const struct rope_scaling *r)
{
    return r->factor > 0 && r->method == ROPE_dynamic;
}

int hf_rope_context(const struct model_shape *s)
{
    return is_dynamic(&s->scaling) ? s->scaling.original_context : s->max_context;
}

/* An object with the RoPE scaling; NULL: the model has none under this key. */
static enum status find_rope(const struct json *root, const char *key, const struct json **rope)
{
    const struct json *v = json_get(root, key);
    *rope = json_is_object(v) ? v : NULL;
    if (v && !json_is_null(v) && !*rope) FAIL(DATA, "\"%s\": expected an object", key);
    return STATUS_OK;
}

static enum status read_type(const struct json *rope, const char **type)
{
    for (const struct json *v = json_first(rope); v; v = json_next(v))
        if (json_is_object(v))
            FAIL(UNSUPPORTED, "RoPE that differs between types of layers is not supported");
    const struct json *name = json_get(rope, "rope_type");
    if (!name) name = json_get(rope, "type");
    if (name && !json_is_string(name)) FAIL(DATA, "\"rope_type\": expected a string");
    *type = name ? json_string(name) : "default";
    return STATUS_OK;
}

static enum status find_method(const char *type, enum rope_method *method)
{
    *method = ROPE_longrope;
    if (!strcmp(type, "su")) return STATUS_OK; /* its older name */
    for (*method = 0; *method <= ROPE_longrope; (*method)++) {
        struct rope_scaling of = {.factor = 1, .method = *method};
        if (!strcmp(type, rope_method_name(&of))) return STATUS_OK;
    }
    FAIL(UNSUPPORTED,
         "rope type \"%s\" is not supported: must be default, llama3, linear, dynamic, yarn "
         "or longrope",
         type);
}

/* If "mscale" and "mscale_all_dim" are set, DeepSeek's ratio of two factors. */
static enum status read_attention_factor(const struct json *rope, struct rope_scaling *r)
{
    double scale, all;
    TRY(hf_value_real(rope, "mscale", 0, &scale));
    TRY(hf_value_real(rope, "mscale_all_dim", 0, &all));
    double log_factor = r->factor > 1 ? log(r->factor) : 0;
    double ratio = (1 + 0.1 * scale * log_factor) / (1 + 0.1 * all * log_factor);
    TRY(hf_value_real(rope, "attention_factor", scale > 0 && all > 0 ? ratio : 0,
                      &r->attention_factor));
    return STATUS_OK;
}

static enum status read_yarn(const struct json *rope, struct rope_scaling *r)
{
    const struct json *truncate = json_get(rope, "truncate");
    if (truncate && !json_is_null(truncate) && !json_true(truncate))
        FAIL(UNSUPPORTED, "rope type \"yarn\" with \"truncate\" = false is not supported");
    TRY(hf_value_real(rope, "beta_fast", 32, &r->beta_fast));
    TRY(hf_value_real(rope, "beta_slow", 1, &r->beta_slow));
    TRY(read_attention_factor(rope, r));
    return STATUS_OK;
}

static enum status read_factors(const struct json *rope, const char *key, double *factors,
                                int *count)
{
    const struct json *list = json_get(rope, key);
    *count = 0;
    for (const struct json *v = json_first(list); v; v = json_next(v)) {
        if (!json_is_number(v)) FAIL(DATA, "\"%s\": expected an array of numbers", key);
        if (*count == ROPE_FACTORS)
            FAIL(UNSUPPORTED, "\"%s\" has more than %d numbers", key, ROPE_FACTORS);
        factors[(*count)++] = json_number(v);
    }
    if (!*count) FAIL(DATA, "\"%s\": expected an array of numbers", key);
    return STATUS_OK;
}

/* Without `factor`, it is the ratio of both contexts. */
static enum status read_longrope(const struct json *root, const struct json *rope,
                                 struct model_shape *s)
{
    const char *key = "original_max_position_embeddings";
    struct rope_scaling *r = &s->scaling;
    int num_long;
    TRY(hf_value_size(json_get(root, key) ? root : rope, key, 0, &r->original_context));
    double ratio = (double)s->max_context / r->original_context;
    TRY(hf_value_real(rope, "factor", ratio > 1 ? ratio : 1, &r->factor));
    TRY(hf_value_real(rope, "attention_factor", 0, &r->attention_factor));
    TRY(read_factors(rope, "short_factor", r->short_factors, &r->num_factors));
    TRY(read_factors(rope, "long_factor", r->long_factors, &num_long));
    if (num_long != r->num_factors)
        FAIL(DATA, "\"short_factor\" has %d numbers, and \"long_factor\" %d", r->num_factors,
             num_long);
    return STATUS_OK;
}

/* The context of the first training.  Phi-3 has the key outside of the object. */
static enum status read_original_context(const struct json *root, const struct json *rope,
                                         struct model_shape *s)
{
    const char *key = "original_max_position_embeddings";
    const struct json *from = json_get(root, key) ? root : rope;
    int *context = &s->scaling.original_context;
    if (s->scaling.method == ROPE_llama3) return hf_value_size(from, key, 0, context);
    if (s->scaling.method == ROPE_yarn) return hf_value_size(from, key, s->max_context, context);
    if (s->scaling.method != ROPE_dynamic) return STATUS_OK;
    double longest = s->max_context * fmax(s->scaling.factor, 1);
    *context = s->max_context;
    s->max_context = longest < INT_MAX ? (int)longest : INT_MAX;
    return STATUS_OK;
}

static enum status read_scaling(const struct json *root, const struct json *rope,
                                struct model_shape *s)
{
    const char *type;
    double partial;
    struct rope_scaling *r = &s->scaling;
    *r = (struct rope_scaling){0};
    TRY(read_type(rope, &type));
    TRY(hf_value_real(root, "rope_theta", s->rope_theta, &s->rope_theta));
    TRY(hf_value_real(rope, "rope_theta", s->rope_theta, &s->rope_theta));
    TRY(hf_value_real(root, "partial_rotary_factor", 1, &partial));
    TRY(hf_value_real(rope, "partial_rotary_factor", partial, &partial));
    if (partial > 1) FAIL(DATA, "\"partial_rotary_factor\" is %g: must be at most 1", partial);
    s->partial_rotary_factor = partial < 1 ? partial : 0;
    if (!strcmp(type, "default")) return STATUS_OK;
    TRY(find_method(type, &r->method));
    if (r->method == ROPE_longrope) return read_longrope(root, rope, s);
    TRY(hf_value_required_real(rope, "factor", &r->factor));
    if (r->factor < 1)
        FAIL(DATA, "\"factor\" of rope type \"%s\" is %g: must be at least 1", type, r->factor);
    if (r->method == ROPE_llama3) {
        TRY(hf_value_required_real(rope, "low_freq_factor", &r->low_frequency_factor));
        TRY(hf_value_required_real(rope, "high_freq_factor", &r->high_frequency_factor));
    }
    if (r->method == ROPE_yarn) TRY(read_yarn(rope, r));
    TRY(read_original_context(root, rope, s));
    return STATUS_OK;
}

/* Fails if the model is described twice, as two models. */
static enum status compare(const struct json *root, const struct json *before,
                           const struct json *now, const struct model_shape *s)
{
    const char *types[2];
    struct model_shape a = *s, b = *s;
    TRY(read_type(before, &types[0]));
    TRY(read_type(now, &types[1]));
    bool is_same = !strcmp(types[0], types[1]);
    if (is_same) {
        TRY(read_scaling(root, before, &a));
        TRY(read_scaling(root, now, &b));
        is_same = rope_scaling_equals(&a.scaling, &b.scaling);
        if (json_get(before, "rope_theta"))
            is_same &= !(a.rope_theta < b.rope_theta) && !(a.rope_theta > b.rope_theta);
    }
    if (!is_same)
        FAIL(DATA, "\"rope_parameters\" and \"rope_scaling\" describe different models: remove the "
                   "one that the weights were not trained with");
    return STATUS_OK;
}

enum status hf_rope_read(const struct json *root, struct model_shape *s)
{
    const struct json *before, *now;
    TRY(find_rope(root, "rope_scaling", &before));
    TRY(find_rope(root, "rope_parameters", &now));
    if (before && now) TRY(compare(root, before, now, s));
    return read_scaling(root, now ? now : before, s);
}
