// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_state.h"

#include "checkpoint/interop/megatron_tensor.h"
#include "formats/pickle_write.h"
#include "test.h"

#include <math.h>

/* An argument of training: an integer, one of these floats, or text. */
enum { ZERO = -100, HALF };
struct argument {
    const char *name;
    int64_t value;
    const char *text;
};

static const struct argument small[] = {
    {"swiglu", 1, NULL},
    {"normalization", 0, "RMSNorm"},
    {"position_embedding_type", 0, "rope"},
    {"hidden_size", 32, NULL},
    {"num_layers", 2, NULL},
    {"num_attention_heads", 4, NULL},
    {"group_query_attention", 1, NULL},
    {"num_query_groups", 2, NULL},
    {"ffn_hidden_size", 48, NULL},
    {"seq_length", 16, NULL},
    {"padded_vocab_size", 128, NULL},
    {"make_vocab_size_divisible_by", 32, NULL},
    {"tensor_model_parallel_size", 2, NULL},
    {"untie_embeddings_and_output_weights", 1, NULL},
    {"consumed_train_samples", 10, NULL},
};
enum { SMALL = sizeof small / sizeof *small };

static void write_argument(struct text *t, const struct argument *a)
{
    pickle_write_string(t, a->name);
    if (a->text)
        pickle_write_string(t, a->text);
    else if (a->value == ZERO || a->value == HALF)
        pickle_write_float(t, a->value == HALF ? 0.5 : 0);
    else
        pickle_write_int(t, a->value);
}

/* Writes {"args": Namespace(small, without `without`, with `extra`), "iteration": 9}. */
static void write_args(struct text *t, const char *without, const struct argument *extra)
{
    pickle_write_proto(t), pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "args"), pickle_write_global(t, "argparse", "Namespace");
    pickle_write_empty_tuple(t), pickle_write_newobj(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
    if (extra) write_argument(t, extra); /* the first of two equal keys counts */
    for (int i = 0; i < SMALL; i++)
        if (!without || strcmp(small[i].name, without)) write_argument(t, &small[i]);
    pickle_write_setitems(t), pickle_write_build(t);
    pickle_write_string(t, "iteration"), pickle_write_int(t, 9);
    pickle_write_setitems(t), pickle_write_stop(t);
}

static enum status read_args(struct megatron_state *m, const char *without,
                             const struct argument *extra)
{
    struct text t = {0};
    struct pickle p;
    size_t used;
    write_args(&t, without, extra);
    CHECK_STATUS(OK, pickle_parse_any(&p, (unsigned char *)t.data, t.len, "common", &used));
    enum status st = megatron_state_read(m, p.root, "common.pt");
    megatron_state_release(m);
    pickle_release(&p);
    text_release(&t);
    return st;
}

TEST(arguments_of_megatron_give_the_shape_and_the_counters)
{
    struct megatron_state m;
    CHECK_STATUS(OK, read_args(&m, NULL, NULL));
    const struct model_shape *s = &m.shape;
    CHECK(m.has_args && s->D == 32 && s->L == 2 && s->H == 4 && s->G == 2 && s->K == 8);
    CHECK(s->F == 48 && s->V == 128 && !s->tied && !s->qk_norm && s->max_context == 16);
    CHECK(fabs(s->rope_theta - 10000) < 1 && m.padded_vocab == 128 && m.vocab_multiple == 64);
    CHECK(m.iteration == 9 && m.tokens_seen == 160 && m.optimizer_step == -1 && m.samples == 10);
    CHECK_STATUS(OK, read_args(&m, NULL, &(struct argument){"vocab_size", 100, NULL}));
    CHECK(m.shape.V == 100);
    CHECK_STATUS(OK, read_args(&m, NULL, &(struct argument){"use_rope_scaling", 1, NULL}));
    CHECK(fabs(m.shape.scaling.factor - 8) < 1e-9 && m.shape.scaling.original_context == 8192);
}

TEST(samples_that_give_no_data_position_are_unknown)
{
    static const struct argument unknown[] = {{"consumed_train_samples", ZERO, NULL},
                                              {"consumed_train_samples", HALF, NULL},
                                              {"consumed_train_samples", -1, NULL},
                                              {"phase_transition_iterations", 5, NULL}};
    struct megatron_state m;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        CHECK_STATUS(OK, read_args(&m, NULL, &unknown[i]));
        CHECK(m.samples == -1);
    }
    CHECK_STATUS(OK, read_args(&m, "consumed_train_samples", NULL));
    CHECK(m.samples == -1);
}

/* Reads small arguments with `extra` and, in this order, those that `write` adds. */
static void check_order_args(const struct argument *extra, size_t count,
                             void (*write)(struct text *t), const char *json)
{
    struct megatron_state m;
    struct torch_state state;
    struct text t = {0};
    struct pickle p;
    size_t used;
    pickle_write_proto(&t), pickle_write_empty_dict(&t), pickle_write_mark(&t);
    pickle_write_string(&t, "args"), pickle_write_empty_dict(&t), pickle_write_mark(&t);
    for (size_t i = 0; i < SMALL; i++) write_argument(&t, &small[i]);
    for (size_t i = 0; i < count; i++) write_argument(&t, &extra[i]);
    if (write) write(&t);
    pickle_write_setitems(&t), pickle_write_setitems(&t), pickle_write_stop(&t);
    CHECK_STATUS(OK, pickle_parse_any(&p, (unsigned char *)t.data, t.len, "common", &used));
    CHECK_STATUS(OK, megatron_state_read(&m, p.root, "common.pt"));
    torch_state_init(&state);
    megatron_state_count(&m, &state);
    CHECK(!strcmp(state.order_args.data, json));
    torch_state_release(&state);
    megatron_state_release(&m);
    pickle_release(&p);
    text_release(&t);
}

static void write_weighted(struct text *t)
{
    pickle_write_string(t, "data_sharding"), pickle_write_bool(t, false);
    pickle_write_string(t, "data_path"), pickle_write_empty_list(t), pickle_write_mark(t);
    pickle_write_string(t, "0.5"), pickle_write_string(t, "/data/\"a");
    pickle_write_appends(t);
}

enum { LONG_PATHS = 200 };
static void write_long(struct text *t)
{
    pickle_write_string(t, "data_path"), pickle_write_empty_list(t), pickle_write_mark(t);
    for (int i = 0; i < LONG_PATHS; i++) pickle_write_string(t, "/data/of/a/run/with/many/sources");
    pickle_write_appends(t);
}

TEST(arguments_that_decide_the_order_of_samples_are_kept)
{
    static const struct argument split = {"split", 0, "99,1,0"}, few = {"train_samples", 5, NULL};
    static const struct argument samples[] = {
        {"train_iters", 7, NULL}, {"global_batch_size", 8, NULL}, {"seed", 1234, NULL}};
    static const struct argument mock = {"mock_data", 1, NULL};
    static const struct argument elsewhere = {"data_args_path", 0, "/data/args"};
    struct text many = {0};
    check_order_args(&split, 1, NULL, "{\"seq_length\": 16, \"split\": \"99,1,0\"}");
    check_order_args(&few, 1, NULL, "{\"seq_length\": 16, \"samples\": 5}");
    check_order_args(samples, 3, write_weighted,
                     "{\"seed\": 1234, \"seq_length\": 16, \"samples\": 56, \"data_sharding\": "
                     "false, \"data_path\": [\"0.5\", \"/data/\\\"a\"]}");
    check_order_args(&mock, 1, NULL, "{\"seq_length\": 16, \"data_path\": [\"mock\"]}");
    check_order_args(&elsewhere, 1, write_long, "{\"seq_length\": 16}");
    text_adds(&many, "{\"seq_length\": 16, \"data_path\": [");
    for (int i = 0; i < LONG_PATHS; i++)
        text_addf(&many, "%s\"/data/of/a/run/with/many/sources\"", i ? ", " : "");
    text_adds(&many, "]}");
    check_order_args(NULL, 0, write_long, many.data);
    text_release(&many);
}

TEST(arguments_of_other_models_are_unsupported)
{
    static const struct argument other[] = {{"swiglu", 0, NULL},
                                            {"normalization", 0, "LayerNorm"},
                                            {"position_embedding_type", 0, "learned_absolute"},
                                            {"rope_type", 0, "yarn"},
                                            {"softmax_type", 0, "off-by-one"}};
    static const char *const on[] = {"num_experts",
                                     "multi_latent_attention",
                                     "apply_layernorm_1p",
                                     "apply_residual_connection_post_layernorm",
                                     "attention_output_gate",
                                     "enable_mhc_connections",
                                     "qk_l2_norm",
                                     "no_rope_freq",
                                     "mtp_num_layers",
                                     "softmax_scale",
                                     "squared_relu",
                                     "activation_func_clamp_value",
                                     "glu_linear_offset",
                                     "use_mup"};
    static const char *const text[] = {"experimental_attention_variant",
                                       "heterogeneous_layers_config_path",
                                       "heterogeneous_layers_config_encoded_json"};
    struct megatron_state m;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        CHECK_STATUS(UNSUPPORTED, read_args(&m, NULL, &other[i]));
        CHECK_MESSAGE(other[i].name);
    }
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        CHECK_STATUS(UNSUPPORTED, read_args(&m, NULL, &(struct argument){on[i], 2, NULL}));
        CHECK_MESSAGE(on[i]);
        CHECK_STATUS(OK, read_args(&m, NULL, &(struct argument){on[i], 0, NULL}));
    }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        CHECK_STATUS(UNSUPPORTED, read_args(&m, NULL, &(struct argument){text[i], 0, "x"}));
        CHECK_MESSAGE(text[i]);
    }
}

TEST(values_that_are_megatrons_defaults_are_those_of_a_llama)
{
    static const struct argument same[] = {{"rope_type", 0, "rope"},
                                           {"softmax_type", 0, "vanilla"}};
    struct megatron_state m;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        CHECK_STATUS(OK, read_args(&m, NULL, &same[i]));
    CHECK_STATUS(OK, read_args(&m, NULL, &(struct argument){"glu_linear_offset", ZERO, NULL}));
    CHECK_STATUS(UNSUPPORTED,
                 read_args(&m, NULL, &(struct argument){"glu_linear_offset", HALF, NULL}));
    CHECK_MESSAGE("glu_linear_offset");
}

TEST(interleaved_rotary_pairs_permute_the_rows_of_heads)
{
    struct megatron_state m;
    struct megatron_sizes z;
    struct tensor_slices s = {0};
    CHECK_STATUS(OK, read_args(&m, NULL, NULL));
    CHECK_STATUS(OK, megatron_state_sizes(&m, NULL, &s, &z));
    CHECK(!s.head_dim && z.L == 2 && z.H == 4 && z.G == 2 && z.K == 8 && z.F == 48);
    CHECK_STATUS(OK, read_args(&m, NULL, &(struct argument){"rotary_interleaved", 1, NULL}));
    CHECK_STATUS(OK, megatron_state_sizes(&m, NULL, &s, &z));
    CHECK(s.head_dim == 8);
}

TEST(missing_and_malformed_arguments_of_megatron_are_named)
{
    static const char *const required[] = {"hidden_size", "num_layers", "num_attention_heads",
                                           "ffn_hidden_size", "padded_vocab_size"};
    struct megatron_state m;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        CHECK_STATUS(DATA, read_args(&m, required[i], NULL));
        CHECK_MESSAGE(required[i]);
        CHECK_STATUS(DATA, read_args(&m, NULL, &(struct argument){required[i], -1, NULL}));
        CHECK_STATUS(DATA, read_args(&m, NULL, &(struct argument){required[i], 0, "many"}));
        CHECK_STATUS(DATA, read_args(&m, NULL, &(struct argument){required[i], 1LL << 40, NULL}));
    }
}

/* In a file a wrong CRC-32 would stop most of these. */
TEST(corrupt_arguments_of_megatron_are_read_or_rejected)
{
    static const unsigned char flips[] = {1, 2, 16, 64, 128};
    struct text t = {0};
    size_t rejected = 0, read = 0;
    write_args(&t, NULL, NULL);
    for (size_t i = 0; i < t.len; i++)
        for (size_t k = 0; k < sizeof flips; k++) {
            struct megatron_state m;
            struct pickle p;
            size_t used;
            t.data[i] ^= (char)flips[k];
            if (!pickle_parse_any(&p, (unsigned char *)t.data, t.len, "common", &used)) {
                enum status st = megatron_state_read(&m, p.root, "common.pt");
                CHECK(!st || st == STATUS_DATA || st == STATUS_UNSUPPORTED || st == STATUS_CONFIG);
                megatron_state_release(&m);
                *(st ? &rejected : &read) += 1;
            }
            pickle_release(&p);
            t.data[i] ^= (char)flips[k];
        }
    CHECK(rejected > 100 && read > 100);
    text_release(&t);
}

TEST(only_what_megatron_would_pad_is_padding)
{
    const struct megatron_state m = {.vocab_multiple = 64}, unknown = {0};
    CHECK(megatron_state_pads(&m, 100, 128) && megatron_state_pads(&m, 128, 128));
    CHECK(!megatron_state_pads(&m, 64, 128) && !megatron_state_pads(&m, 129, 128));
    CHECK(!megatron_state_pads(&unknown, 100, 128));
}
