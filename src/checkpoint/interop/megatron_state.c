// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_state.h"

#include "checkpoint/interop/megatron_tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_none(const struct pickle_value *v) { return !v || v->kind == PICKLE_IS_NONE; }

static bool as_real(const struct pickle_value *v, double *out)
{
    if (!v || (v->kind != PICKLE_IS_INT && v->kind != PICKLE_IS_FLOAT)) return false;
    *out = v->kind == PICKLE_IS_INT ? (double)v->integer : v->real;
    return isfinite(*out);
}

static bool as_count(const struct pickle_value *v, int64_t *out)
{
    double real;
    if (!as_real(v, &real) || real < 0 || real > 0x1p53 || real > floor(real)) return false;
    *out = (int64_t)real;
    return true;
}

static bool is_true(const struct pickle_value *args, const char *key)
{
    const struct pickle_value *v = pickle_get(args, key);
    return v && (v->kind == PICKLE_IS_BOOL || v->kind == PICKLE_IS_INT) && v->integer;
}

/* None, False or 0. */
static bool is_off(const struct pickle_value *v)
{
    double real;
    if (is_none(v)) return true;
    if (v->kind == PICKLE_IS_BOOL) return !v->integer;
    return as_real(v, &real) && real >= 0 && real <= 0;
}

/* `fallback` replaces None or a missing argument; 0: the argument is required. */
static enum status read_count(const struct pickle_value *args, const char *key, int64_t fallback,
                              int *out)
{
    const struct pickle_value *v = pickle_get(args, key);
    int64_t value = fallback;
    if ((!is_none(v) || !fallback) && (!as_count(v, &value) || value < 1 || value > INT32_MAX))
        FAIL(DATA, "args.%s: expected a positive integer", key);
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_real(const struct pickle_value *args, const char *key, double fallback,
                             double *out)
{
    const struct pickle_value *v = pickle_get(args, key);
    *out = fallback;
    if (!is_none(v) && (!as_real(v, out) || *out <= 0))
        FAIL(DATA, "args.%s: expected a number above 0", key);
    return STATUS_OK;
}

/* Arguments that make another model, or another layout of the same. */
static enum status check_llama(const struct pickle_value *args)
{
    static const char *const must_be_off[] = {
        "num_experts",
        "multi_latent_attention",
        "apply_layernorm_1p",
        "apply_residual_connection_post_layernorm",
        "attention_output_gate",
        "experimental_attention_variant",
        "enable_mhc_connections",
        "qk_l2_norm",
        "no_rope_freq",
        "mtp_num_layers",
        "softmax_scale",
        "squared_relu",
        "activation_func_clamp_value",
        "glu_linear_offset",
        "use_mup",
        "heterogeneous_layers_config_path",
        "heterogeneous_layers_config_encoded_json",
    };
    static const struct {
        const char *key, *value;
        bool may_be_none; /* or missing, and then has this value */
    } must_be[] = {{"normalization", "RMSNorm", false},
                   {"position_embedding_type", "rope", false},
                   {"rope_type", "rope", true},
                   {"softmax_type", "vanilla", true}};
    if (!is_true(args, "swiglu"))
        FAIL(UNSUPPORTED, "args.swiglu is not True: only models with SwiGLU are supported");
    for (size_t i = 0; i < sizeof must_be / sizeof *must_be; i++) {
        const struct pickle_value *v = pickle_get(args, must_be[i].key);
        bool fits = must_be[i].may_be_none && is_none(v);
        if (!fits && !pickle_is_string(v, must_be[i].value))
            FAIL(UNSUPPORTED, "args.%s is not \"%s\", the only supported one", must_be[i].key,
                 must_be[i].value);
    }
    for (size_t i = 0; i < sizeof must_be_off / sizeof *must_be_off; i++)
        if (!is_off(pickle_get(args, must_be_off[i])))
            FAIL(UNSUPPORTED, "args.%s is set, which is not supported", must_be_off[i]);
    return STATUS_OK;
}

static enum status read_rope(const struct pickle_value *args, struct model_shape *s)
{
    double percent, linear, factor;
    TRY(read_real(args, "rotary_base", 10000, &s->rope_theta));
    TRY(read_real(args, "rotary_percent", 1, &percent));
    TRY(read_real(args, "rotary_seq_len_interpolation_factor", 1, &linear));
    TRY(read_real(args, "rope_scaling_factor", 8, &factor));
    if (percent < 1) s->partial_rotary_factor = percent;
    bool scaled = is_true(args, "use_rope_scaling");
    if (scaled && linear > 1)
        FAIL(UNSUPPORTED, "args.use_rope_scaling together with "
                          "args.rotary_seq_len_interpolation_factor is not supported");
    if (scaled)
        s->scaling = (struct rope_scaling){.factor = factor,
                                           .low_frequency_factor = 1,
                                           .high_frequency_factor = 4,
                                           .original_context = 8192};
    else if (linear > 1)
        s->scaling = (struct rope_scaling){.factor = linear, .method = ROPE_linear};
    return STATUS_OK;
}

/* args.window_size: (tokens before, tokens after), -1: all. */
static enum status read_window(const struct pickle_value *args, struct model_shape *s)
{
    const struct pickle_value *v = pickle_get(args, "window_size"), *left = pickle_item(v, 0);
    const struct pickle_value *skip = pickle_get(args, "window_attn_skip_freq");
    int64_t tokens;
    if (is_none(v) || (left && left->kind == PICKLE_IS_INT && left->integer == -1))
        return STATUS_OK;
    if (!as_count(left, &tokens) || tokens >= INT32_MAX)
        FAIL(DATA, "args.window_size: expected two integers");
    if (!is_none(skip))
        FAIL(UNSUPPORTED, "args.window_attn_skip_freq is set, which is not supported");
    s->window = (int)tokens + 1;
    return STATUS_OK;
}

static enum status read_vocabulary(struct megatron_state *m, const struct pickle_value *args)
{
    int padded, multiple;
    int64_t V;
    TRY(read_count(args, "padded_vocab_size", 0, &padded));
    TRY(read_count(args, "make_vocab_size_divisible_by", 128, &multiple));
    m->padded_vocab = m->shape.V = padded;
    m->vocab_multiple = (int64_t)multiple * m->tp;
    bool known = as_count(pickle_get(args, "vocab_size"), &V) && V > 0 && V <= padded;
    if (known && megatron_state_pads(m, V, padded)) m->shape.V = (int)V;
    return STATUS_OK;
}

static enum status read_args(struct megatron_state *m, const struct pickle_value *args)
{
    struct model_shape *s = &m->shape;
    TRY(check_llama(args));
    TRY(read_count(args, "tensor_model_parallel_size", 1, &m->tp));
    TRY(read_count(args, "pipeline_model_parallel_size", 1, &m->pp));
    TRY(read_count(args, "virtual_pipeline_model_parallel_size", 1, &m->chunks));
    TRY(read_vocabulary(m, args));
    TRY(read_count(args, "hidden_size", 0, &s->D));
    TRY(read_count(args, "num_layers", 0, &s->L));
    TRY(read_count(args, "num_attention_heads", 0, &s->H));
    s->G = s->H;
    if (is_true(args, "group_query_attention"))
        TRY(read_count(args, "num_query_groups", s->H, &s->G));
    TRY(read_count(args, "kv_channels", s->D / s->H ? s->D / s->H : 1, &s->K));
    TRY(read_count(args, "ffn_hidden_size", 0, &s->F));
    TRY(read_count(args, "seq_length", 4096, &s->max_context));
    TRY(read_count(args, "max_position_embeddings", s->max_context, &s->max_context));
    TRY(read_real(args, "norm_epsilon", 1e-5, &s->norm_eps));
    TRY(read_rope(args, s));
    TRY(read_window(args, s));
    s->qk_norm = is_true(args, "qk_layernorm");
    s->out_bias = s->mlp_bias = is_true(args, "add_bias_linear");
    s->qkv_bias = s->out_bias || is_true(args, "add_qkv_bias");
    s->tied = !is_true(args, "untie_embeddings_and_output_weights");
    m->rotary_interleaved = is_true(args, "rotary_interleaved");
    if (m->rotary_interleaved && (s->qk_norm || s->partial_rotary_factor > 0))
        FAIL(UNSUPPORTED,
             "args.rotary_interleaved with qk_layernorm or rotary_percent is not supported");
    TRY(model_shape_check(s));
    return STATUS_OK;
}

/* The step of the first param_group; optimizers are nested in a dict, too. */
static void read_optimizer_step(struct megatron_state *m, const struct pickle_value *optimizer)
{
    const struct pickle_value *inner = pickle_get(optimizer, "optimizer");
    const struct pickle_value *groups = pickle_get(inner ? inner : optimizer, "param_groups");
    as_count(pickle_get(pickle_item(groups, 0), "step"), &m->optimizer_step);
}

/* Where the sampler continues (build_train_valid_test_data_loaders), unless it is elsewhere in the
 * data of a phase.  Megatron-LM, too, takes 0 samples after some iterations for a missing count. */
static void read_samples(struct megatron_state *m, const struct pickle_value *args)
{
    int64_t samples;
    if (as_count(pickle_get(args, "consumed_train_samples"), &samples) &&
        (samples || m->iteration <= 0) && is_none(pickle_get(args, "phase_transition_iterations")))
        m->samples = samples;
}

static bool is_text(const struct pickle_value *v)
{
    return v && v->kind == PICKLE_IS_STRING && text_is_utf8(v->text, v->len) &&
           !memchr(v->text, '\0', v->len);
}

static void write_text(struct json_writer *w, const char *key, const struct pickle_value *v)
{
    if (!is_text(v)) return;
    char *string = heap_string(v->text, v->len);
    json_write_string(w, key, string);
    free(string);
}

static void write_count(struct json_writer *w, const char *key, const struct pickle_value *v)
{
    int64_t count;
    if (as_count(v, &count)) json_write_int(w, key, count);
}

/* The number of samples that Megatron-LM builds the order for. */
static void write_samples(struct json_writer *w, const struct pickle_value *args)
{
    const struct pickle_value *iterations = pickle_get(args, "train_iters");
    int64_t samples, steps, batch;
    if (!is_off(pickle_get(args, "train_samples"))) {
        write_count(w, "samples", pickle_get(args, "train_samples"));
    } else if (as_count(iterations, &steps) &&
               as_count(pickle_get(args, "global_batch_size"), &batch) &&
               !__builtin_mul_overflow(steps, batch, &samples) && samples <= JSON_MAX_INT) {
        json_write_int(w, "samples", samples);
    }
}

/* Without the paths in another file (--data-args-path). */
static void write_paths(struct json_writer *w, const struct pickle_value *args)
{
    const struct pickle_value *paths = pickle_get(args, "data_path");
    bool is_mock = is_true(args, "mock_data");
    size_t count = paths && paths->kind == PICKLE_IS_LIST ? paths->count : 0;
    for (size_t i = 0; i < count; i++)
        if (!is_text(paths->items[i])) return;
    if (!is_mock && (!count || !is_none(pickle_get(args, "data_args_path")))) return;
    json_begin_array(w, "data_path", JSON_INLINE);
    if (is_mock) json_write_string(w, NULL, "mock");
    for (size_t i = 0; i < count && !is_mock; i++) write_text(w, NULL, paths->items[i]);
    json_end_array(w);
}

static void read_order_args(struct megatron_state *m, const struct pickle_value *args)
{
    const struct pickle_value *sharding = pickle_get(args, "data_sharding");
    struct json_writer w = {.text = &m->order_args};
    json_begin_object(&w, NULL, JSON_INLINE);
    write_count(&w, "seed", pickle_get(args, "seed"));
    write_count(&w, "seq_length", pickle_get(args, "seq_length"));
    write_count(&w, "micro_batch_size", pickle_get(args, "micro_batch_size"));
    write_count(&w, "data_parallel_size", pickle_get(args, "data_parallel_size"));
    write_samples(&w, args);
    write_text(&w, "split", pickle_get(args, "split"));
    write_text(&w, "dataloader_type", pickle_get(args, "dataloader_type"));
    if (sharding && sharding->kind == PICKLE_IS_BOOL)
        json_write_bool(&w, "data_sharding", sharding->integer);
    write_paths(&w, args);
    json_end_object(&w);
}

static void read_counters(struct megatron_state *m, const struct pickle_value *common,
                          const struct pickle_value *args)
{
    int64_t samples, tokens, seen;
    as_count(pickle_get(common, "iteration"), &m->iteration);
    read_optimizer_step(m, pickle_get(common, "optimizer"));
    if (as_count(pickle_get(args, "consumed_train_samples"), &samples) &&
        as_count(pickle_get(args, "seq_length"), &tokens) &&
        !__builtin_mul_overflow(samples, tokens, &seen) && seen <= INT64_C(1) << 53)
        m->tokens_seen = seen;
    read_samples(m, args);
    if (args) read_order_args(m, args);
}

void megatron_state_init(struct megatron_state *m)
{
    *m = (struct megatron_state){
        .iteration = -1, .optimizer_step = -1, .tokens_seen = -1, .samples = -1};
}

void megatron_state_release(struct megatron_state *m) { text_release(&m->order_args); }

enum status megatron_state_read(struct megatron_state *m, const struct pickle_value *common,
                                const char *path)
{
    const struct pickle_value *args = pickle_get(common, "args");
    megatron_state_init(m);
    if (!common || common->kind != PICKLE_IS_DICT)
        FAIL(DATA, "%s: expected a dict with args and iteration", path);
    if (args && args->kind == PICKLE_IS_OBJECT && args->count > 1) args = args->items[1];
    m->has_args = args && args->kind == PICKLE_IS_DICT;
    if (m->has_args) TRY_PREFIX(read_args(m, args), "%s", path);
    read_counters(m, common, args);
    return STATUS_OK;
}

enum status megatron_state_require_args(const struct megatron_state *m)
{
    if (!m->has_args)
        FAIL(UNSUPPORTED, "the checkpoint has no args, which determine the order of parameters");
    return STATUS_OK;
}

bool megatron_state_pads(const struct megatron_state *m, int64_t V, int64_t rows)
{
    int64_t n = m->vocab_multiple;
    return n > 0 && V > 0 && V <= rows && (V + n - 1) / n * n == rows;
}

enum status megatron_state_sizes(const struct megatron_state *m, const struct model_shape *shape,
                                 struct tensor_slices *slices, struct megatron_sizes *z)
{
    const struct model_shape *s = m->has_args ? &m->shape : shape;
    if (!s)
        FAIL(MISSING,
             "%s: the checkpoint has no args, and config.json was not found: the weights alone do "
             "not determine the number of heads",
             slices->path);
    int64_t V = shape ? shape->V : s->V;
    bool drops = megatron_state_pads(m, V, m->padded_vocab);
    *z = (struct megatron_sizes){s->L, s->H, s->G, s->K, s->F, drops ? V : 0};
    slices->head_dim = m->rotary_interleaved ? s->K : 0;
    return STATUS_OK;
}

void megatron_state_count(const struct megatron_state *m, struct torch_state *state)
{
    state->step = m->iteration;
    state->optimizer_step = m->optimizer_step;
    state->tokens_seen = m->tokens_seen;
    state->samples = m->samples;
    text_clear(&state->order_args);
    if (m->order_args.len) text_adds(&state->order_args, m->order_args.data);
}
