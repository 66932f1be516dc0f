// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_tensor.h"

#include <ctype.h>
#include <string.h>

enum split { WHOLE, VOCABULARY, QKV, HALVES };

struct megatron_form {
    const char *name; /* within a layer if it begins with a dot */
    enum split split;
    enum param_id ids[3];
};

static const struct megatron_form forms[] = {
    {"embedding.word_embeddings.weight", VOCABULARY, {PARAM_embed}},
    {"output_layer.weight", VOCABULARY, {PARAM_head}},
    {"decoder.final_layernorm.weight", WHOLE, {PARAM_last_norm}},
    {".input_layernorm.weight", WHOLE, {PARAM_attn_norm}},
    {".self_attention.linear_qkv.layer_norm_weight", WHOLE, {PARAM_attn_norm}},
    {".self_attention.linear_qkv.weight", QKV, {PARAM_attn_q, PARAM_attn_k, PARAM_attn_v}},
    {".self_attention.linear_qkv.bias", QKV, {PARAM_q_bias, PARAM_k_bias, PARAM_v_bias}},
    {".self_attention.linear_proj.weight", WHOLE, {PARAM_attn_out}},
    {".self_attention.linear_proj.bias", WHOLE, {PARAM_out_bias}},
    {".self_attention.q_layernorm.weight", WHOLE, {PARAM_q_norm}},
    {".self_attention.k_layernorm.weight", WHOLE, {PARAM_k_norm}},
    {".pre_mlp_layernorm.weight", WHOLE, {PARAM_mlp_norm}},
    {".mlp.linear_fc1.layer_norm_weight", WHOLE, {PARAM_mlp_norm}},
    {".mlp.linear_fc1.weight", HALVES, {PARAM_mlp_gate, PARAM_mlp_up}},
    {".mlp.linear_fc1.bias", HALVES, {PARAM_gate_bias, PARAM_up_bias}},
    {".mlp.linear_fc2.weight", WHOLE, {PARAM_mlp_down}},
    {".mlp.linear_fc2.bias", WHOLE, {PARAM_down_bias}},
};

static bool skip_prefix(const char **name, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*name, prefix, len)) return false;
    *name += len;
    return true;
}

static const char *const keys[] = {[MEGATRON_MODEL] = "",
                                   [MEGATRON_FP32] = "param",
                                   [MEGATRON_EXP_AVG] = "exp_avg",
                                   [MEGATRON_EXP_AVG_SQ] = "exp_avg_sq"};

const char *megatron_tensor_key(enum megatron_source source) { return keys[source]; }

enum megatron_source megatron_tensor_source(const char *key, size_t len)
{
    for (enum megatron_source s = MEGATRON_FP32; s <= MEGATRON_EXP_AVG_SQ; s++)
        if (strlen(keys[s]) == len && !strncmp(keys[s], key, len)) return s;
    return MEGATRON_MODEL;
}

/* A chain of optimizers numbers their tensors: chained_0.optimizer.state... */
static const char *skip_chain(const char *name)
{
    const char *at = name;
    if (!skip_prefix(&at, "chained_")) return name;
    while (isdigit((unsigned char)*at)) at++;
    return *at == '.' ? at + 1 : name;
}

static bool parse_source(const char **name, enum megatron_source *source)
{
    *source = MEGATRON_MODEL;
    *name = skip_chain(*name);
    if (!skip_prefix(name, "optimizer.state.")) return true;
    if (!strncmp(*name, "fp32_param.", 11)) skip_prefix(name, "fp32_");
    size_t len = strcspn(*name, ".");
    *source = megatron_tensor_source(*name, len);
    *name += len;
    return *source != MEGATRON_MODEL && skip_prefix(name, ".");
}

/* Parses "layers.3" or "layers"; *rest is what follows. */
static bool parse_layer(const char *name, struct megatron_tensor *out, const char **rest)
{
    *rest = name;
    if (!skip_prefix(&name, "decoder.layers")) return false;
    *rest = name;
    out->is_stacked = !(name[0] == '.' && isdigit((unsigned char)name[1]));
    if (out->is_stacked) return *name == '.';
    for (name++, out->layer = 0; isdigit((unsigned char)*name); name++) {
        out->layer = 10 * out->layer + *name - '0';
        if (out->layer >= MEGATRON_MAX_LAYERS) return false;
    }
    *rest = name;
    return *name == '.';
}

/* A name that ends in _w or _v is that of a half of linear_fc1. */
static bool matches(const struct megatron_form *form, const char *name, bool *is_second_half)
{
    size_t len = strlen(form->name);
    *is_second_half = false;
    if (strncmp(form->name, name, len)) return false;
    if (!name[len]) return true;
    *is_second_half = !strcmp(name + len, "_v");
    return form->split == HALVES && (*is_second_half || !strcmp(name + len, "_w"));
}

bool megatron_tensor_parse(const char *name, struct megatron_tensor *out)
{
    const char *rest;
    *out = (struct megatron_tensor){.layer = -1};
    if (!parse_source(&name, &out->source)) return false;
    out->key = name;
    while (skip_prefix(&name, "module.")) continue;
    skip_prefix(&name, "model.");
    bool in_layer = parse_layer(name, out, &rest);
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !out->form; i++)
        if ((forms[i].name[0] == '.') == in_layer && matches(&forms[i], rest, &out->is_second_half))
            out->form = &forms[i];
    return out->form != NULL;
}

static bool contains(const char *name, const char *part) { return strstr(name, part) != NULL; }

bool megatron_tensor_is_ignored(const char *name)
{
    static const char *const prefixes[] = {"optimizer.", "rng_state", "rerun_state_machine",
                                           "common_state", "opt_param_scheduler"};
    name = skip_chain(name);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) return true;
    return contains(name, "_extra_state") || contains(name, "rotary_pos_emb.inv_freq");
}

int megatron_tensor_dims(const struct megatron_tensor *n)
{
    return params[n->form->ids[0]].axes[1] ? 2 : 1;
}

bool megatron_tensor_has_halves(const struct megatron_tensor *n)
{
    return n->form->split == HALVES && !n->is_second_half;
}

int64_t megatron_tensor_rows(const struct megatron_tensor *n, const struct megatron_sizes *z)
{
    if (n->form->split == QKV) return (z->H + 2 * z->G) * z->K;
    return n->form->split == HALVES ? 2 * z->F : 0;
}

static enum tensor_kind kind_of(const struct megatron_tensor *n)
{
    return n->source == MEGATRON_EXP_AVG      ? TENSOR_EXP_AVG
           : n->source == MEGATRON_EXP_AVG_SQ ? TENSOR_EXP_AVG_SQ
                                              : TENSOR_WEIGHT;
}

struct tensor_name megatron_tensor_first(const struct megatron_tensor *n, int layer)
{
    return (struct tensor_name){n->form->ids[n->is_second_half], layer, kind_of(n)};
}

/* Which of our tensors has a row of the fused tensor, at which row, and how many rows of it follow
 * one another. */
struct run_of_rows {
    int part;
    int64_t row, count;
};

static struct run_of_rows find_row(const struct megatron_form *f, const struct megatron_sizes *z,
                                   int64_t row)
{
    if (f->split == HALVES) return (struct run_of_rows){row >= z->F, row % z->F, z->F - row % z->F};
    int64_t queries = z->H / z->G * z->K, group = queries + 2 * z->K;
    int64_t g = row / group, i = row % group, j = i - queries;
    if (j < 0) return (struct run_of_rows){0, g * queries + i, -j};
    return (struct run_of_rows){1 + (int)(j / z->K), g * z->K + j % z->K, z->K - j % z->K};
}

/* The tensor was checked against its storage; strides of an empty one may be anything. */
struct torch_tensor megatron_tensor_part(const struct torch_tensor *t, int64_t from, int64_t count)
{
    struct torch_tensor part = *t;
    part.shape[0] = count;
    if (from && (t->num_dims < 2 || t->shape[1]))
        part.data += (size_t)(from * t->strides[0]) * safetensors_dtype_bytes(t->dtype);
    return part;
}

static enum status add_whole(struct tensor_slices *slices, const struct megatron_sizes *z,
                             const struct tensor_name *name, const struct file_slice *piece,
                             bool has_padding)
{
    struct torch_tensor t = *piece->tensor;
    if (has_padding && z->V && t.shape[0] > z->V - piece->row)
        t.shape[0] = piece->row < z->V ? z->V - piece->row : 0;
    TRY(tensor_slices_add(slices, name,
                          &(struct file_slice){&t, piece->map, piece->row, piece->column}));
    return STATUS_OK;
}

enum status megatron_tensor_add(struct tensor_slices *slices, const struct megatron_sizes *z,
                                const struct megatron_tensor *n, int layer,
                                const struct file_slice *piece)
{
    const struct megatron_form *f = n->form;
    const struct torch_tensor *t = piece->tensor;
    struct tensor_name name = megatron_tensor_first(n, layer);
    int64_t rows = megatron_tensor_rows(n, z), end;
    int64_t first = piece->row + (n->is_second_half ? z->F : 0);
    if (t->num_dims != megatron_tensor_dims(n))
        FAIL(DATA, "%s: %s has %d dimensions, expected %d", slices->path, t->name, t->num_dims,
             megatron_tensor_dims(n));
    if (!rows) {
        TRY(add_whole(slices, z, &name, piece, f->split == VOCABULARY));
        return STATUS_OK;
    }
    if (__builtin_add_overflow(first, t->shape[0], &end) || end > rows)
        FAIL(DATA, "%s: %s has rows up to %lld, expected %lld", slices->path, t->name,
             (long long)(first + t->shape[0]), (long long)rows);
    for (int64_t row = first, count; row < end; row += count) {
        const struct run_of_rows run = find_row(f, z, row);
        count = run.count < end - row ? run.count : end - row;
        struct torch_tensor part = megatron_tensor_part(t, row - first, count);
        name.id = f->ids[run.part];
        TRY(tensor_slices_add(slices, &name,
                              &(struct file_slice){&part, piece->map, run.row, piece->column}));
    }
    return STATUS_OK;
}
