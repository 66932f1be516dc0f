// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/params_json.h"

#include "base/json.h"

#include <math.h>

/* Absent and null are `otherwise`; 0: it must be there. */
static enum status read_count(const struct json *root, const char *key, int otherwise, int *out)
{
    const struct json *v = json_get(root, key);
    int64_t value = otherwise;
    if ((v && !json_is_null(v)) || !otherwise) TRY(json_get_int(root, key, 1, INT32_MAX, &value));
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_real(const struct json *root, const char *key, double otherwise,
                             double *out)
{
    const struct json *v = json_get(root, key);
    *out = otherwise;
    if (!v || json_is_null(v)) return STATUS_OK;
    if (!json_is_number(v) || !isfinite(json_number(v)) || json_number(v) <= 0)
        FAIL(DATA, "\"%s\" is no number above 0", key);
    *out = json_number(v);
    return STATUS_OK;
}

/* Meta's own program has these numbers in it, and only the factor may be in the file. */
static enum status read_rope(const struct json *root, struct model_shape *s)
{
    bool scaled = json_true(json_get(root, "use_scaled_rope"));
    TRY(read_real(root, "rope_theta", 10000, &s->rope_theta));
    if (scaled) {
        s->scaling = (struct rope_scaling){.original_context = 8192};
        TRY(read_real(root, "rope_scaling_factor", 8, &s->scaling.factor));
        TRY(read_real(root, "rope_low_freq_factor", 1, &s->scaling.low_frequency_factor));
        TRY(read_real(root, "rope_high_freq_factor", 4, &s->scaling.high_frequency_factor));
        TRY(read_count(root, "rope_original_context", 8192, &s->scaling.original_context));
    }
    int context = scaled ? 131072 : s->rope_theta > 10000 ? 8192 : 4096;
    TRY(read_count(root, "max_seq_len", context, &s->max_context));
    return STATUS_OK;
}

/* Rows of a tensor; 0: it is not there. */
static int64_t rows_of(const struct patches *p, enum param_id id, int layer)
{
    const struct patched *t = patches_find(p, &(struct patch_name){.id = id, .layer = layer});
    return t ? t->rows : 0;
}

static enum status read_shape(const struct json *root, const struct patches *p,
                              struct model_shape *s)
{
    int64_t V = rows_of(p, PARAM_embed, -1), F = rows_of(p, PARAM_mlp_gate, 0);
    int64_t D = rows_of(p, PARAM_last_norm, -1);
    *s = (struct model_shape){.depth_init = true, .tied = !rows_of(p, PARAM_head, -1)};
    if (!V || !F || !D || V > INT32_MAX || F > INT32_MAX || D > INT32_MAX)
        FAIL(DATA, "%s: the embedding, a feed-forward layer or the last norm is missing", p->path);
    s->V = (int)V, s->F = (int)F;
    TRY(read_count(root, "dim", (int)D, &s->D));
    if (s->D != D) FAIL(DATA, "\"dim\" is %d; the tensors have %lld", s->D, (long long)D);
    TRY(read_count(root, "n_layers", 0, &s->L));
    TRY(read_count(root, "n_heads", 0, &s->H));
    TRY(read_count(root, "n_kv_heads", s->H, &s->G));
    TRY(read_count(root, "head_dim", s->D / s->H ? s->D / s->H : 1, &s->K));
    TRY(read_real(root, "norm_eps", 1e-5, &s->norm_eps));
    TRY(read_rope(root, s));
    TRY(model_shape_check(s));
    return STATUS_OK;
}

enum status params_json_read(const char *path, const struct patches *p, struct model_shape *shape)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    enum status st = read_shape(root, p, shape);
    json_free(root);
    if (st) return status_where(st, "%s", path);
    return STATUS_OK;
}

/* F = int(multiplier int(8 D / 3)), as Meta's program computes it with multiple_of 1. */
static double multiplier(const struct model_shape *s)
{
    return ((double)s->F + 0.5) / (double)(8 * (int64_t)s->D / 3);
}

void params_json_write(const struct model_shape *s, struct text *json)
{
    text_addf(json,
              "{\"dim\": %d, \"n_layers\": %d, \"n_heads\": %d, \"n_kv_heads\": %d, "
              "\"vocab_size\": %d, \"multiple_of\": 1, \"ffn_dim_multiplier\": ",
              s->D, s->L, s->H, s->G, s->V);
    json_real(json, multiplier(s));
    text_addf(json, ", \"norm_eps\": %.17g, \"rope_theta\": %.17g, \"use_scaled_rope\": %s",
              s->norm_eps, s->rope_theta, s->scaling.factor > 0 ? "true" : "false");
    if (s->scaling.factor > 0)
        text_addf(json,
                  ", \"rope_scaling_factor\": %.17g, \"rope_low_freq_factor\": %.17g, "
                  "\"rope_high_freq_factor\": %.17g, \"rope_original_context\": %d",
                  s->scaling.factor, s->scaling.low_frequency_factor,
                  s->scaling.high_frequency_factor, s->scaling.original_context);
    if (s->K != s->D / s->H) text_addf(json, ", \"head_dim\": %d", s->K);
    text_addf(json, ", \"max_seq_len\": %d}\n", s->max_context);
}
