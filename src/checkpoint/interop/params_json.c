// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/params_json.h"

#include "base/json.h"
#include "checkpoint/interop/hf_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status read_real(const struct json *root, const char *key, double fallback, double *out)
{
    const struct json *v = json_get(root, key);
    *out = fallback;
    if (!v || json_is_null(v)) return STATUS_OK;
    if (!json_is_number(v) || !isfinite(json_number(v)) || json_number(v) <= 0)
        FAIL(DATA, "\"%s\": expected a number above 0", key);
    *out = json_number(v);
    return STATUS_OK;
}

/* The parameters of RoPE scaling that the file leaves out. */
static struct rope_scaling default_scaling(bool tied)
{
    return (struct rope_scaling){.factor = tied ? 32 : 8,
                                 .low_frequency_factor = 1,
                                 .high_frequency_factor = 4,
                                 .original_context = 8192};
}

static enum status read_rope(const struct json *root, struct model_shape *s)
{
    bool scaled = json_true(json_get(root, "use_scaled_rope"));
    TRY(read_real(root, "rope_theta", 10000, &s->rope_theta));
    if (scaled) {
        struct rope_scaling *r = &s->scaling, is = default_scaling(s->tied);
        TRY(read_real(root, "rope_scaling_factor", is.factor, &r->factor));
        TRY(read_real(root, "rope_low_freq_factor", is.low_frequency_factor,
                      &r->low_frequency_factor));
        TRY(read_real(root, "rope_high_freq_factor", is.high_frequency_factor,
                      &r->high_frequency_factor));
        TRY(hf_value_size(root, "rope_original_context", is.original_context,
                          &r->original_context));
    }
    int context = scaled ? 131072 : s->rope_theta > 10000 ? 8192 : 4096;
    TRY(hf_value_size(root, "max_seq_len", context, &s->max_context));
    return STATUS_OK;
}

/* Rows of a tensor; 0: missing. */
static int64_t rows_of(const struct tensor_slices *slices, enum param_id id, int layer)
{
    const struct sliced_tensor *t =
        tensor_slices_find(slices, &(struct tensor_name){.id = id, .layer = layer});
    return t ? t->rows : 0;
}

/* Meta's files of a tied model may have the embedding under both names. */
static enum status detect_tied(const struct tensor_slices *slices, bool *tied)
{
    enum { RUN = 1 << 18 };
    const struct sliced_tensor *a =
        tensor_slices_find(slices, &(struct tensor_name){.id = PARAM_embed, .layer = -1});
    const struct sliced_tensor *b =
        tensor_slices_find(slices, &(struct tensor_name){.id = PARAM_head, .layer = -1});
    enum status st = STATUS_OK;
    *tied = !b;
    if (!a || !b || a->rows != b->rows || a->columns != b->columns) return STATUS_OK;
    *tied = a->count == 1 && b->count == 1 && a->all[0].data == b->all[0].data;
    if (*tied) return STATUS_OK;
    size_t count = (size_t)a->rows * (size_t)a->columns;
    float *x = heap(RUN * sizeof *x), *y = heap(RUN * sizeof *y);
    *tied = true;
    for (size_t at = 0, n; at < count && *tied; at += n) {
        n = count - at < RUN ? count - at : RUN;
        TRY_OUT(tensor_slices_read(slices, a, at, n, x));
        TRY_OUT(tensor_slices_read(slices, b, at, n, y));
        tensor_slices_forget(slices, a, at, n);
        tensor_slices_forget(slices, b, at, n);
        *tied = !memcmp(x, y, n * sizeof *x);
    }
    TRY_OUT(tensor_slices_check(a));
    TRY_OUT(tensor_slices_check(b));
out:
    free(x), free(y);
    return st;
}

static enum status read_shape(const struct json *root, const struct tensor_slices *slices,
                              const struct model_shape *model, struct model_shape *s)
{
    int64_t V = rows_of(slices, PARAM_embed, -1), F = rows_of(slices, PARAM_mlp_gate, 0);
    int64_t D = rows_of(slices, PARAM_last_norm, -1), dim = 0;
    *s = (struct model_shape){.depth_init = true};
    if (json_is_object(json_get(root, "model"))) root = json_get(root, "model");
    TRY(detect_tied(slices, &s->tied));
    if (model && !V) V = model->V, s->tied = model->tied;
    if (model && !F) F = model->F;
    if (model && !D) D = json_as_int(json_get(root, "dim"), 1, INT32_MAX, &dim) ? dim : model->D;
    if (!V || !F || !D || V > INT32_MAX || F > INT32_MAX || D > INT32_MAX)
        FAIL(DATA, "%s: the embedding, a feed-forward layer or the last norm is missing",
             slices->path);
    s->V = (int)V, s->F = (int)F;
    TRY(hf_value_size(root, "dim", (int)D, &s->D));
    if (s->D != D) FAIL(DATA, "\"dim\" is %d, but the tensors have %lld", s->D, (long long)D);
    TRY(hf_value_size(root, "n_layers", 0, &s->L));
    TRY(hf_value_size(root, "n_heads", 0, &s->H));
    TRY(hf_value_size(root, "n_kv_heads", s->H, &s->G));
    TRY(hf_value_size(root, "head_dim", s->D / s->H ? s->D / s->H : 1, &s->K));
    TRY(read_real(root, "norm_eps", 1e-5, &s->norm_eps));
    TRY(read_rope(root, s));
    TRY(model_shape_check(s));
    return STATUS_OK;
}

enum status params_json_read(const char *path, const struct tensor_slices *slices,
                             const struct model_shape *model, struct model_shape *shape)
{
    struct json *root;
    TRY(json_read(path, 16 << 20, &root));
    enum status st = read_shape(root, slices, model, shape);
    json_free(root);
    if (st) return status_prefix(st, "%s", path);
    return STATUS_OK;
}

/* F = int(ffn_multiplier int(8 D / 3)), as Meta's code computes it with multiple_of 1. */
static double ffn_multiplier(const struct model_shape *s)
{
    return ((double)s->F + 0.5) / (double)(8 * (int64_t)s->D / 3);
}

static void write_scaling(struct json_writer *w, const struct rope_scaling *r, bool tied)
{
    const struct rope_scaling fallback = default_scaling(tied);
    const struct {
        const char *key;
        double value, fallback;
    } floats[] = {
        {"rope_scaling_factor", r->factor, fallback.factor},
        {"rope_low_freq_factor", r->low_frequency_factor, fallback.low_frequency_factor},
        {"rope_high_freq_factor", r->high_frequency_factor, fallback.high_frequency_factor},
    };
    json_write_bool(w, "use_scaled_rope", true);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (fabs(floats[i].value - floats[i].fallback) > 0)
            json_write_real(w, floats[i].key, floats[i].value);
    if (r->original_context != fallback.original_context)
        json_write_int(w, "rope_original_context", r->original_context);
}

void params_json_write(const struct model_shape *s, struct text *json)
{
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "dim", s->D);
    json_write_int(&w, "n_layers", s->L);
    json_write_int(&w, "n_heads", s->H);
    json_write_int(&w, "n_kv_heads", s->G);
    json_write_int(&w, "vocab_size", s->V);
    json_write_int(&w, "multiple_of", 1);
    json_write_real(&w, "ffn_dim_multiplier", ffn_multiplier(s));
    json_write_real(&w, "norm_eps", s->norm_eps);
    json_write_real(&w, "rope_theta", s->rope_theta);
    if (s->scaling.factor > 0) write_scaling(&w, &s->scaling, s->tied);
    if (s->K != s->D / s->H) json_write_int(&w, "head_dim", s->K);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}
