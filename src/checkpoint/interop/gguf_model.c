// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/gguf_model.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/interop/hf_fused.h"
#include "ops/rope.h"
#include "tokenizer/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const gguf_names[PARAM_COUNT] = {
    [PARAM_embed] = "token_embd.weight",
    [PARAM_attn_norm] = "blk.%d.attn_norm.weight",
    [PARAM_attn_q] = "blk.%d.attn_q.weight",
    [PARAM_attn_k] = "blk.%d.attn_k.weight",
    [PARAM_attn_v] = "blk.%d.attn_v.weight",
    [PARAM_attn_out] = "blk.%d.attn_output.weight",
    [PARAM_mlp_norm] = "blk.%d.ffn_norm.weight",
    [PARAM_mlp_gate] = "blk.%d.ffn_gate.weight",
    [PARAM_mlp_up] = "blk.%d.ffn_up.weight",
    [PARAM_mlp_down] = "blk.%d.ffn_down.weight",
    [PARAM_q_norm] = "blk.%d.attn_q_norm.weight",
    [PARAM_k_norm] = "blk.%d.attn_k_norm.weight",
    [PARAM_post_attn_norm] = "blk.%d.post_attention_norm.weight",
    [PARAM_post_mlp_norm] = "blk.%d.post_ffw_norm.weight",
    [PARAM_wide_q_norm] = "blk.%d.attn_q_norm.weight",
    [PARAM_wide_k_norm] = "blk.%d.attn_k_norm.weight",
    [PARAM_q_bias] = "blk.%d.attn_q.bias",
    [PARAM_k_bias] = "blk.%d.attn_k.bias",
    [PARAM_v_bias] = "blk.%d.attn_v.bias",
    [PARAM_out_bias] = "blk.%d.attn_output.bias",
    [PARAM_gate_bias] = "blk.%d.ffn_gate.bias",
    [PARAM_up_bias] = "blk.%d.ffn_up.bias",
    [PARAM_down_bias] = "blk.%d.ffn_down.bias",
    [PARAM_last_norm] = "output_norm.weight",
    [PARAM_head] = "output.weight",
};

/* Names of fused matrices (hf_fused.h), by their first part. */
static const char *const fused_names[PARAM_COUNT] = {
    [PARAM_attn_q] = "blk.%d.attn_qkv.weight", [PARAM_mlp_gate] = "blk.%d.ffn_up.weight"};

/* llama.cpp's LLAMA_FTYPE of a file in which most tensors have this type. */
static uint32_t file_type(enum gguf_type type)
{
    switch (type) {
    case GGUF_F32: return 0;
    case GGUF_F16: return 1;
    case GGUF_Q8_0: return 7;
    case GGUF_BF16: return 32;
    }
    return 0;
}

/* llama.cpp's name of the architecture. */
static const char *architecture(const struct model_shape *s)
{
    if (model_shape_is_phi3(s)) return "phi3";
    if (model_shape_multiplies(s)) return "granite";
    if (s->no_rope_interval) return "smollm3";
    if (s->post_norm) return "olmo2";
    return s->qk_norm ? "qwen3" : s->qkv_bias && !s->out_bias ? "qwen2" : "llama";
}

/* The key that begins with the architecture's name. */
struct gguf_key {
    char name[64];
};

static struct gguf_key key_of(const struct model_shape *s, const char *name)
{
    struct gguf_key key;
    snprintf(key.name, sizeof key.name, "%s.%s", architecture(s), name);
    return key;
}

static void add_scaling(const struct model_shape *s, struct gguf_metadata *k)
{
    const struct rope_scaling *r = &s->scaling;
    if (!(r->factor > 0) || r->method == ROPE_llama3) return;
    if (r->method == ROPE_longrope) {
        gguf_add_u32(k, key_of(s, "rope.scaling.original_context_length").name,
                     (uint32_t)r->original_context);
        gguf_add_f32(k, key_of(s, "rope.scaling.attn_factor").name, rope_attention_factor(r));
        return;
    }
    gguf_add_string(k, key_of(s, "rope.scaling.type").name, rope_method_name(r));
    gguf_add_f32(k, key_of(s, "rope.scaling.factor").name, r->factor);
    if (r->method != ROPE_yarn) return;
    gguf_add_u32(k, key_of(s, "rope.scaling.original_context_length").name,
                 (uint32_t)r->original_context);
}

/* Granite's. */
static void add_multipliers(const struct model_shape *s, struct gguf_metadata *k)
{
    if (!model_shape_multiplies(s)) return;
    const struct {
        const char *key;
        double value;
    } of[] = {{"embedding_scale", model_shape_multiplier(s->embedding_multiplier)},
              {"residual_scale", model_shape_multiplier(s->residual_multiplier)},
              {"logit_scale", model_shape_multiplier(s->logits_scaling)},
              {"attention.scale", (double)model_shape_attention_scale(s)}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        gguf_add_f32(k, key_of(s, of[i].key).name, of[i].value);
}

static void add_shape(const struct gguf_model *g, struct gguf_metadata *k)
{
    const struct model_shape *s = g->model.shape;
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        {"context_length", s->max_context},
        {"embedding_length", s->D},
        {"block_count", s->L},
        {"feed_forward_length", s->F},
        {"attention.head_count", s->H},
        {"attention.head_count_kv", s->G},
        {"attention.key_length", s->K},
        {"attention.value_length", s->K},
        {"rope.dimension_count", 2 * model_shape_rotary_pairs(s)},
        {"vocab_size", s->V},
    };
    gguf_add_string(k, "general.architecture", architecture(s));
    gguf_add_string(k, "general.type", "model");
    gguf_add_string(k, "general.name", g->name);
    gguf_add_u32(k, "general.alignment", GGUF_ALIGNMENT);
    gguf_add_u32(k, "general.file_type", file_type(g->type));
    gguf_add_u32(k, "general.quantization_version", 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gguf_add_u32(k, key_of(s, sizes[i].key).name, (uint32_t)sizes[i].value);
    gguf_add_f32(k, key_of(s, "rope.freq_base").name, s->rope_theta);
    gguf_add_f32(k, key_of(s, "attention.layer_norm_rms_epsilon").name, s->norm_eps);
    add_scaling(s, k);
    add_multipliers(s, k);
    if (g->is_masked) gguf_add_bool(k, key_of(s, "attention.causal").name, false);
}

/* Each row of the embedding needs a token: rows beyond the tokenizer's become unused tokens. */
static void add_tokens(const struct token_table *e, int32_t rows, struct gguf_metadata *k)
{
    const char *texts = e->texts.data;
    gguf_begin_array(k, "tokenizer.ggml.tokens", GGUF_VALUE_STRING, (uint64_t)rows);
    for (int32_t id = 0; id < rows; id++) {
        char pad[32];
        int len = snprintf(pad, sizeof pad, "[PAD%d]", id);
        if (id < e->num_tokens)
            gguf_add_item_string(k, texts + e->tokens[id].text.at, e->tokens[id].text.len);
        else
            gguf_add_item_string(k, pad, (size_t)len);
    }
    gguf_begin_array(k, "tokenizer.ggml.token_type", GGUF_VALUE_I32, (uint64_t)rows);
    for (int32_t id = 0; id < rows; id++)
        gguf_add_item_u32(k, id < e->num_tokens ? e->tokens[id].kind : TOKEN_UNUSED);
    if (e->has_merges) {
        gguf_begin_array(k, "tokenizer.ggml.merges", GGUF_VALUE_STRING, e->num_merges);
        for (size_t i = 0; i < e->num_merges; i++)
            gguf_add_item_string(k, texts + e->merges[i].at, e->merges[i].len);
        return;
    }
    gguf_begin_array(k, "tokenizer.ggml.scores", GGUF_VALUE_F32, (uint64_t)rows);
    for (int32_t id = 0; id < rows; id++)
        gguf_add_item_f32(k, id < e->num_tokens ? e->tokens[id].score : -1000);
}

/* llama.cpp names a pre-tokenizer after a model that uses it.  llama-bpe and tekken have
 * ignore_merges; dbrx has the pattern of llama-bpe without it.  The rest have the same names. */
static const char *pre_tokenizer_name(const struct token_table *e)
{
    static const struct {
        const char *splitter, *name;
    } known[] = {{"qwen2", "qwen2"}, {"digits gpt2", "smollm"}, {"gpt2", "gpt-2"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(e->splitter, known[i].splitter)) return known[i].name;
    if (strcmp(e->splitter, "llama3")) return e->splitter;
    return e->ignore_merges ? "llama-bpe" : "dbrx";
}

static enum status add_tokenizer(const struct gguf_model *g, const struct tokenizer *t,
                                 struct gguf_metadata *k)
{
    struct token_table e;
    int rows = g->model.shape->V;
    int bos = g->bos >= 0 ? g->bos : tokenizer_bos(t),
        eos = g->eos >= 0 ? g->eos : tokenizer_eos(t);
    TRY(export_token_table(t, &e));
    if (e.num_tokens > rows) {
        int32_t has = e.num_tokens;
        token_table_release(&e);
        FAIL(DATA, "%s: the tokenizer has %d tokens, the model only %d", tokenizer_path(t), has,
             rows);
    }
    if (e.is_unigram) {
        token_table_release(&e);
        FAIL(UNSUPPORTED, "%s: GGUF files with a Unigram tokenizer are not supported",
             tokenizer_path(t));
    }
    if (e.normalizes)
        log_line(LOG_WARN, "%s: this tokenizer normalizes text; llama.cpp will not",
                 tokenizer_path(t));
    gguf_add_string(k, "tokenizer.ggml.model", e.has_merges ? "gpt2" : "llama");
    if (e.has_merges) gguf_add_string(k, "tokenizer.ggml.pre", pre_tokenizer_name(&e));
    add_tokens(&e, rows, k);
    if (bos >= 0) gguf_add_u32(k, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (eos >= 0) gguf_add_u32(k, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (e.unknown >= 0) gguf_add_u32(k, "tokenizer.ggml.unknown_token_id", (uint32_t)e.unknown);
    gguf_add_bool(k, "tokenizer.ggml.add_bos_token", bos >= 0);
    gguf_add_bool(k, "tokenizer.ggml.add_eos_token", false);
    if (!e.has_merges) gguf_add_bool(k, "tokenizer.ggml.add_space_prefix", e.adds_space);
    token_table_release(&e);
    return STATUS_OK;
}

/* Opens the tokenizer with what GGUF needs: SentencePiece's own file has the scores, and then
 * tokenizer.json must not have more tokens. */
static enum status open_tokenizer(const char *folder, struct tokenizer **t)
{
    const struct tokenizer_config config = {0};
    char *json = file_join(folder, "tokenizer.json"), *model = file_join(folder, "tokenizer.model");
    struct tokenizer *other = NULL;
    enum status st = STATUS_OK;
    *t = NULL;
    if (file_exists(model)) TRY_OUT(tokenizer_open(t, model, &config));
    if (!file_exists(json)) goto out;
    TRY_OUT(tokenizer_open(&other, json, &config));
    if (*t && !strncmp(tokenizer_kind(*t), "SentencePiece", 13)) {
        if (tokenizer_vocab_size(other) > tokenizer_vocab_size(*t))
            FAIL_OUT(UNSUPPORTED, "%s has %d tokens, but %s only %d: the others have no score",
                     json, tokenizer_vocab_size(other), model, tokenizer_vocab_size(*t));
        goto out;
    }
    tokenizer_close(*t);
    *t = other, other = NULL;
out:
    tokenizer_close(other);
    free(json), free(model);
    return st;
}

static enum status add_metadata(const struct gguf_model *g, struct gguf_metadata *k)
{
    struct tokenizer *t;
    enum status st = open_tokenizer(g->tokenizer, &t);
    if (!st) add_shape(g, k);
    if (!st && t) st = add_tokenizer(g, t, k);
    if (!st && !t) {
        log_line(LOG_WARN,
                 "%s: neither tokenizer.json nor tokenizer.model found: writing the file without a "
                 "tokenizer",
                 g->tokenizer);
        gguf_add_string(k, "tokenizer.ggml.model", "no_vocab");
    }
    tokenizer_close(t);
    return st;
}

/* The number of tensors, from the i-th on, that the file stores as one. */
static int num_fused(const struct gguf_model *g, int i)
{
    if (!model_shape_is_phi3(g->model.shape)) return 1;
    return hf_fused_count(g->model.layout->tensors[i].id);
}

static struct gguf_tensor describe_tensor(const struct gguf_model *g, int i)
{
    const struct tensor_slot *t = &g->model.layout->tensors[i];
    bool vector = params[t->id].axes[1] == 0;
    int64_t first = vector ? t->rows : t->columns, rows = 0;
    const int count = num_fused(g, i);
    for (int k = 0; k < count; k++) rows += t[k].rows;
    struct gguf_tensor d = {.type = vector ? GGUF_F32 : g->type,
                            .num_dims = vector ? 1 : 2,
                            .dims = {(uint64_t)first, (uint64_t)rows}};
    if (d.type == GGUF_Q8_0 && first % GGUF_BLOCK) d.type = GGUF_F16;
    snprintf(d.name, sizeof d.name, count > 1 ? fused_names[t->id] : gguf_names[t->id], t->layer);
    return d;
}

enum { EMBED = 0 }; /* the first tensor of a layout */

/* llama.cpp's olmo2 does not take the embedding as the head. */
static bool has_copied_head(const struct model_shape *s) { return s->tied && s->post_norm; }

static struct gguf_tensor describe_copied_head(const struct gguf_model *g)
{
    struct gguf_tensor d = describe_tensor(g, EMBED);
    snprintf(d.name, sizeof d.name, "%s", gguf_names[PARAM_head]);
    return d;
}

/* llama.cpp reads Llama 3.1's scaling as a tensor, the others as keys. */
static bool has_rope_freqs(const struct model_shape *s)
{
    return s->scaling.factor > 0 && s->scaling.method == ROPE_llama3;
}

static bool has_rope_factors(const struct model_shape *s)
{
    return s->scaling.factor > 0 && s->scaling.method == ROPE_longrope;
}

/* One divisor for the frequency of each rotary pair of a head.  Returns how many tensors. */
static int describe_rope(const struct model_shape *s, struct gguf_tensor *d)
{
    const uint64_t pairs = (uint64_t)model_shape_rotary_pairs(s);
    const struct gguf_tensor freqs = {.name = "rope_freqs.weight", .num_dims = 1, .dims = {pairs}};
    if (has_rope_freqs(s)) d[0] = freqs;
    if (!has_rope_factors(s)) return has_rope_freqs(s);
    d[0] = d[1] = freqs;
    snprintf(d[0].name, sizeof d[0].name, "rope_factors_long.weight");
    snprintf(d[1].name, sizeof d[1].name, "rope_factors_short.weight");
    return 2;
}

struct gguf_output {
    int fd;
    const char *path, *tensor;
    uint64_t at;
    enum gguf_type type;
    unsigned char *bytes; /* TENSOR_SOURCE_ELEMENTS converted elements */
};

static enum status write_bytes(struct gguf_output *o, const void *bytes, size_t len)
{
    TRY(file_write_at(o->fd, o->path, bytes, len, o->at));
    o->at += len;
    return STATUS_OK;
}

static enum status write_elements(void *context, const void *values, size_t len)
{
    struct gguf_output *o = context;
    size_t count = len / sizeof(float);
    TRY_PREFIX(gguf_convert(o->type, values, count, o->bytes), "%s", o->tensor);
    return write_bytes(o, o->bytes, gguf_bytes(o->type, count));
}

static enum status write_padding(struct gguf_output *o, uint64_t bytes)
{
    static const char zeros[GGUF_ALIGNMENT];
    return write_bytes(o, zeros, gguf_padding(bytes));
}

static enum status write_factors(const double *factors, int count, struct gguf_output *o)
{
    for (int j = 0; j < count; j++) {
        float divisor = (float)factors[j];
        TRY(write_elements(o, &divisor, sizeof divisor));
    }
    return write_padding(o, sizeof(float) * (size_t)count);
}

static enum status write_rope_factors(const struct rope_scaling *r, struct gguf_output *o)
{
    TRY(write_factors(r->long_factors, r->num_factors, o));
    TRY(write_factors(r->short_factors, r->num_factors, o));
    return STATUS_OK;
}

static enum status write_rope_freqs(const struct model_shape *s, struct gguf_output *o)
{
    const int J = s->K / 2;
    const struct rope_angles plain = {.J = J, .theta = s->rope_theta};
    const struct rope_angles scaled = {.J = J, .theta = s->rope_theta, .scaling = &s->scaling};
    for (int j = 0; j < J; j++) {
        float divisor = (float)(rope_frequency(j, &plain) / rope_frequency(j, &scaled));
        TRY(write_elements(o, &divisor, sizeof divisor));
    }
    return write_padding(o, sizeof(float) * (size_t)J);
}

static enum status write_tensors(const struct gguf_model *g, const struct gguf_tensor *tensors,
                                 struct gguf_output *o)
{
    struct torch_model model = g->model;
    model.dtype = SAFETENSORS_F32;
    for (int i = 0, count; i < model.layout->num_tensors; i += count, tensors++) {
        count = num_fused(g, i);
        o->type = tensors->type;
        o->tensor = tensors->name;
        for (int k = 0; k < count; k++) TRY(torch_model_stream(&model, i + k, write_elements, o));
        TRY(write_padding(o, tensors->bytes));
    }
    if (has_copied_head(model.shape)) {
        o->type = tensors->type;
        o->tensor = tensors->name;
        TRY(torch_model_stream(&model, EMBED, write_elements, o));
        TRY(write_padding(o, tensors->bytes));
    }
    o->type = GGUF_F32;
    if (has_rope_freqs(model.shape)) TRY(write_rope_freqs(model.shape, o));
    if (has_rope_factors(model.shape)) TRY(write_rope_factors(&model.shape->scaling, o));
    return STATUS_OK;
}

static enum status write_file(const struct gguf_model *g, struct gguf_output *o)
{
    int all = g->model.layout->num_tensors, count = 0;
    struct gguf_tensor *tensors = heap(((size_t)all + 3) * sizeof *tensors);
    struct gguf_metadata keys = {0};
    struct text head = {0};
    uint64_t total;
    enum status st = STATUS_OK;
    for (int i = 0; i < all; i += num_fused(g, i)) tensors[count++] = describe_tensor(g, i);
    BUG_IF(g->model.layout->tensors[EMBED].id != PARAM_embed);
    if (has_copied_head(g->model.shape)) tensors[count++] = describe_copied_head(g);
    count += describe_rope(g->model.shape, &tensors[count]);
    TRY_OUT(add_metadata(g, &keys));
    gguf_build_header(&keys, tensors, (size_t)count, &head, &total);
    TRY_OUT(write_bytes(o, head.data, head.len));
    TRY_OUT(write_tensors(g, tensors, o));
    BUG_IF(o->at != head.len + total);
    if (fsync(o->fd)) FAIL_OUT(IO, "%s: %s", o->path, strerror(errno));
out:
    gguf_metadata_release(&keys);
    text_release(&head);
    free(tensors);
    return st;
}

enum status gguf_model_write(const struct gguf_model *g, const char *path)
{
    struct gguf_output o = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666),
                            .path = path};
    if (o.fd < 0) FAIL(IO, "%s: %s", path, strerror(errno));
    o.bytes = heap(TENSOR_SOURCE_ELEMENTS * sizeof(float));
    enum status st = write_file(g, &o);
    free(o.bytes);
    close(o.fd);
    return st;
}
