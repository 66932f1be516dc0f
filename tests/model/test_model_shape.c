// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/layout.h"
#include "model/model_defaults.h"

#include <limits.h>

static struct model_shape resolve(const char *family, const char *flavor)
{
    struct model_config c = model_defaults(family, flavor);
    struct model_shape s;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    return s;
}

static int64_t count(const char *family, const char *flavor)
{
    struct model_shape s = resolve(family, flavor);
    struct layout l;
    layout_init(&l, &s, 1);
    int64_t n = l.parameters;
    layout_release(&l);
    return n;
}

TEST(flavors_have_the_published_numbers_of_parameters)
{
    static const struct {
        const char *family, *flavor;
        int64_t parameters;
    } published[] = {
        {"frontier", "1B", 1397819392},     {"llama3", "1B", 1397819392},
        {"llama3.2", "1B", 1235814400},     {"llama3.2", "3B", 3212749824},
        {"frontier", "8B", 8030261248},     {"llama3", "8B", 8030261248},
        {"llama3.1", "8B", 8030261248},     {"llama3", "70B", 70553706496},
        {"llama3.1", "405B", 405853388800}, {"llama2", "7B", 6738415616},
        {"llama2", "13B", 13015864320},     {"llama2", "70B", 68976648192},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        assert_int_equal(count(published[i].family, published[i].flavor), published[i].parameters);
}

TEST(neural_8b_is_llama_8b_with_a_vocabulary_of_256)
{
    struct model_config c = model_defaults("frontier", "8B");
    struct model_shape s;
    struct layout l;
    c.vocab_size = 256;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 128256));
    layout_init(&l, &s, 1);
    CHECK(l.parameters == 6981685248);
    layout_release(&l);
}

TEST(the_two_models_called_1b_differ)
{
    struct model_shape fork = resolve("frontier", "1B"), meta = resolve("llama3.2", "1B");
    CHECK(fork.F == 7168 && !fork.tied && fork.scaling.factor == 0);
    CHECK(meta.F == 8192 && meta.tied && meta.scaling.factor == 32);
    CHECK(resolve("frontier", "3B").F == 11264 && resolve("llama3.2", "3B").F == 8192);
}

TEST(rope_scaling_follows_the_family)
{
    CHECK(resolve("llama3", "8B").scaling.factor == 8);
    CHECK(resolve("llama3", "8B").scaling.original_context == 8192);
    CHECK(resolve("frontier", "8B").scaling.factor == 0);
    CHECK(resolve("llama2", "7B").scaling.factor == 0 && resolve("llama2", "7B").rope_theta == 1e4);
    struct model_config c = model_defaults("frontier", "8B");
    struct model_shape s;
    c.rope_scaling = ROPE_SCALING_llama3;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.scaling.factor == 8);
    c = model_defaults("llama3.2", "1B");
    c.rope_scaling = ROPE_SCALING_none;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.scaling.factor == 0);
}

TEST(olmo2_has_norms_behind)
{
    struct model_shape s = resolve("olmo2", "1B");
    CHECK(s.post_norm && s.qk_norm && s.norm_eps == 1e-6 && s.F == 8192 && !s.tied);
    CHECK(count("olmo2", "1B") == 1484916736);
    CHECK(resolve("olmo2", "7B").F == 11008 && count("olmo2", "7B") == 7298617344);
    CHECK(resolve("olmo2", "13B").F == 13824 && resolve("olmo2", "32B").F == 27648);
    struct model_config c = model_defaults("olmo2", "1B");
    c.sliding_window = 7;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.sliding_window = 7 with model.post_norm = true");
}

TEST(settings_that_phi3_does_not_have_are_refused_with_partial_rope)
{
    struct model_config c = model_defaults("llama2", "7B"), bad;
    struct model_shape s;
    c.partial_rotary_factor = 0.75;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(model_shape_rotary_pairs(&s) == 48 && model_shape_is_phi3(&s));
    bad = c, bad.qk_norm = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("model.partial_rotary_factor = 0.75 with model.qk_norm = true: no family");
    bad = c, bad.attention_bias = ATTENTION_BIAS_qkv;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("with model.attention_bias: no family");
    bad = c, bad.no_rope_layer_interval = 4;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("with model.no_rope_layer_interval: no family");
    bad = c, bad.rope_scaling = ROPE_SCALING_linear, bad.rope_factor = 2;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("with model.rope_scaling = \"linear\": no family");
    c.partial_rotary_factor = 1;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(model_shape_rotary_pairs(&s) == 64 && !model_shape_is_phi3(&s));
}

TEST(longrope_takes_a_factor_for_each_rotary_pair)
{
    struct model_config c = model_defaults("llama2", "7B"), bad;
    struct model_shape s;
    double factors[64];
    for (int j = 0; j < 64; j++) factors[j] = 1 + j;
    c.rope_scaling = ROPE_SCALING_longrope;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("\"longrope\" requires model.rope_original_context, model.rope_short_factor");
    c.rope_original_context = 1024, c.partial_rotary_factor = 0.75;
    c.rope_short_factor = c.rope_long_factor = (struct option_reals){factors, 48};
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.scaling.method == ROPE_longrope && s.scaling.factor == 4 && s.max_context == 4096);
    CHECK(s.scaling.num_factors == 48 && s.scaling.long_factors[47] == 48);
    c.rope_factor = 3;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.scaling.factor == 3 && model_shape_is_phi3(&s));
    bad = c, bad.partial_rotary_factor = 0;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("have 48 numbers: must be 64, one for each rotary pair of a head");
    bad = c, bad.rope_long_factor.count = 47;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("model.rope_short_factor (48 numbers) and as many numbers");
    bad = c, bad.dim = 2048, bad.head_dim = 128;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("with 32 heads of 128: must be as wide as model.dim = 2048 together");
    bad = c, bad.mlp_bias = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &bad, 0));
    CHECK_MESSAGE("model.partial_rotary_factor = 0.75 with model.mlp_bias = true");
}

TEST(yarn_and_dynamic_scaling_extend_the_context_unless_the_original_one_is_set)
{
    struct model_config c = model_defaults("llama2", "7B");
    struct model_shape s;
    for (int i = 0; i < 2; i++) {
        c.rope_scaling = i ? ROPE_SCALING_dynamic : ROPE_SCALING_yarn, c.rope_factor = 2.5;
        c.rope_original_context = 0, c.max_context = 4096;
        CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
        CHECK(s.scaling.original_context == 4096 && s.max_context == 10240);
        c.rope_original_context = 4096, c.max_context = 8192;
        CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
        CHECK(s.scaling.original_context == 4096 && s.max_context == 8192);
    }
    c.rope_original_context = 0, c.rope_factor = 1e6;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.max_context == INT_MAX);
}

TEST(feed_forward_widths_are_the_published_ones)
{
    CHECK(resolve("llama3", "8B").F == 14336 && resolve("llama3", "70B").F == 28672);
    CHECK(resolve("llama3", "405B").F == 53248 && resolve("llama2", "7B").F == 11008);
    CHECK(resolve("llama2", "13B").F == 13824 && resolve("llama2", "70B").F == 28672);
    CHECK(resolve("frontier", "250M").F == 4096 && resolve("frontier", "870M").F == 7168);
    CHECK(resolve("frontier", "2B").K == 96 && resolve("llama3", "debugmodel").F == 768);
}

TEST(options_override_the_flavor)
{
    struct model_config c = model_defaults("llama3", "debugmodel");
    struct model_shape s;
    c.dim = 512, c.n_layers = 3, c.n_heads = 8, c.rope_theta = 1e6, c.norm_eps = 1e-6;
    c.tie_embeddings = YES, c.depth_init = NO;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 1000));
    CHECK(s.D == 512 && s.L == 3 && s.H == 8 && s.G == 8 && s.K == 64 && s.V == 1000);
    CHECK(s.F == 1536 && s.rope_theta == 1e6 && s.norm_eps == 1e-6 && s.tied && !s.depth_init);
    c.n_kv_heads = 2, c.head_dim = 32, c.ffn_hidden = 100, c.vocab_size = 77;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 1000));
    CHECK(s.G == 2 && s.K == 32 && s.F == 100 && s.V == 77);
}

/* Rows of bfloat16 logits that are not a multiple of 16 bytes exclude cuBLASLt's fast kernels. */
TEST(a_vocabulary_of_any_size_is_padded_for_the_gemms_of_gpus_unless_the_option_is_set)
{
    static const struct {
        int V, multiple, rows;
    } cases[] = {{261, 0, 272},       {4095, 0, 4096},   {4097, 0, 4160}, {50257, 0, 50304},
                 {128256, 0, 128256}, {50257, 1, 50257}, {261, 128, 384}};
    struct model_config c = model_defaults("llama3", "debugmodel");
    CHECK(c.vocab_multiple == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_shape s, slice;
        c.vocab_multiple = cases[i].multiple;
        CHECK_STATUS(OK, model_shape_resolve(&s, &c, cases[i].V));
        slice = model_shape_slice(&s, 0, 1);
        CHECK(model_shape_vocab(&slice, 0).rows == cases[i].rows);
        CHECK(s.V == cases[i].V && model_shape_vocab(&s, 0).rows == cases[i].V);
    }
}

TEST(qwen_flavors_have_the_published_sizes_and_the_settings_of_their_family)
{
    static const struct {
        const char *family, *flavor;
        int F;
        long long parameters;
    } rows[] = {{"qwen2.5", "0.5B", 4864, 494032768}, {"qwen2.5", "1.5B", 8960, 1543714304},
                {"qwen2.5", "7B", 18944, 7615616512}, {"qwen3", "0.6B", 3072, 596049920},
                {"qwen3", "1.7B", 6144, 1720574976},  {"qwen3", "4B", 9728, 4022468096},
                {"qwen3", "8B", 12288, 8190735360},   {"qwen3", "14B", 17408, 14768307200},
                {"qwen3", "32B", 25600, 32762123264}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_config c = model_defaults(rows[i].family, rows[i].flavor);
        bool is_qwen3 = !strcmp(rows[i].family, "qwen3");
        struct model_shape s;
        CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
        CHECK(s.F == rows[i].F && count(rows[i].family, rows[i].flavor) == rows[i].parameters);
        CHECK(s.qk_norm == is_qwen3 && s.norm_eps == 1e-6 && s.rope_theta == 1e6);
        CHECK(s.qkv_bias == !is_qwen3 && !s.out_bias);
        CHECK(!is_qwen3 || s.K == 128);
    }
}

TEST(smollm3_has_the_published_size_and_no_rope_in_every_fourth_block)
{
    struct model_config c = model_defaults("smollm3", "3B");
    struct model_shape s;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.F == 11008 && count("smollm3", "3B") == 3075098624);
    CHECK(s.no_rope_interval == 4 && s.rope_theta == 5e6 && s.max_context == 65536);
    CHECK(model_shape_has_rope(&s, 0) && model_shape_has_rope(&s, 2));
    CHECK(!model_shape_has_rope(&s, 3) && !model_shape_has_rope(&s, 35));
    c.no_rope_layer_interval = 37; /* no block */
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.no_rope_interval == 0);
}

TEST(multipliers_that_have_no_effect_are_unset)
{
    struct model_config c = model_defaults("llama3", "debugmodel");
    struct model_shape s;
    c.embedding_multiplier = c.residual_multiplier = c.logits_scaling = 1;
    c.attention_multiplier = 0.25; /* heads of 16 */
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(!model_shape_multiplies(&s));
    c.attention_multiplier = 0.5;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(model_shape_multiplies(&s) && model_shape_attention_scale(&s) == 0.5f);
    c.no_rope_layer_interval = 2;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("no_rope_layer_interval = 2 with model.embedding_multiplier");
    c.no_rope_layer_interval = 0, c.qk_norm = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.qk_norm = true with model.embedding_multiplier");
}

TEST(settings_of_different_families_do_not_combine)
{
    struct model_config c = model_defaults("llama3", "debugmodel");
    struct model_shape s;
    c.attention_bias = ATTENTION_BIAS_qkv, c.mlp_bias = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.attention_bias = \"qkv\": no family of Transformers has both");
    c.attention_bias = ATTENTION_BIAS_all;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.qkv_bias && s.out_bias && s.mlp_bias);
    c.qk_norm = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.qk_norm = true with model.mlp_bias = true");
    c = model_defaults("mistral", "7B"), c.sliding_window = 4096;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
    CHECK(s.window == 4096 && s.F == 14336 && count("mistral", "7B") == 7248023552);
    c.qk_norm = true;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.sliding_window = 4096 with model.qk_norm = true");
    c = model_defaults("qwen3", "0.6B"), c.attention_bias = ATTENTION_BIAS_qkv;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("with model.attention_bias = \"qkv\"");
    c.attention_bias = ATTENTION_BIAS_all;
    CHECK_STATUS(OK, model_shape_resolve(&s, &c, 0));
}

TEST(unknown_flavors_name_the_sizes_of_the_family_or_the_closest_family)
{
    struct model_config c = model_defaults("llama3", "80B");
    struct model_shape s;
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.flavor = \"80B\": unknown size; expected debugmodel, ");
    CHECK_MESSAGE(", 8B, 8B_flex, 8B_varlen, 70B, 405B");
    c.flavor = "8b";
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.flavor = \"8b\": unknown size; did you mean \"8B\"?");
    c = model_defaults("lama3.2", "1B");
    CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
    CHECK_MESSAGE("model.name = \"lama3.2\": unknown family; did you mean \"llama3.2\"?");
}

TEST(other_families_are_named_as_what_they_are)
{
    static const char *const others[] = {"qwen3_moe", "llama4",  "deepseek_v3", "gpt_oss",
                                         "flux",      "Mixtral", "rwkv"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct model_config c = model_defaults(others[i], "8B");
        struct model_shape s;
        CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
        CHECK_MESSAGE("\": not supported: ");
        CHECK(!strstr(status_message(), "did you mean"));
    }
    CHECK_MESSAGE("rwkv is not a known family; expected llama2, llama3");
}

TEST(flavors_of_other_attention_have_the_sizes_of_the_plain_one)
{
    CHECK(count("llama3", "8B_flex") == count("llama3", "8B"));
    CHECK(count("llama3", "8B_varlen") == count("llama3", "8B"));
    CHECK(count("llama3", "debugmodel_flex_attn") == count("llama3", "debugmodel"));
    CHECK(count("llama3", "debugmodel_varlen_attn") == count("llama3", "debugmodel"));
}

TEST(contradictory_dimensions_are_rejected)
{
    static const struct {
        int64_t dim, n_heads, n_kv_heads, head_dim;
        const char *message;
    } bad[] = {
        {100, 16, 0, 0, "model.dim = 100"},    {256, 16, 3, 0, "model.n_kv_heads = 3"},
        {48, 16, 0, 0, "model.head_dim = 3"},  {-8, 16, 0, 8, "model.dim = -8"},
        {256, -1, 0, 0, "model.n_heads = -1"}, {1 << 21, 16, 0, 2, "model.dim = 2097152"},
        {256, 16, 0, 4096, "model.head_dim"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct model_config c = model_defaults("llama3", "debugmodel");
        struct model_shape s;
        c.dim = bad[i].dim, c.n_heads = bad[i].n_heads;
        c.n_kv_heads = bad[i].n_kv_heads, c.head_dim = bad[i].head_dim;
        CHECK_STATUS(CONFIG, model_shape_resolve(&s, &c, 0));
        CHECK_MESSAGE(bad[i].message);
    }
    struct model_shape s = resolve("llama3", "debugmodel");
    s.norm_eps = 1e-60; /* 0 as a float */
    CHECK_STATUS(CONFIG, model_shape_check(&s));
    s.norm_eps = NAN;
    CHECK_STATUS(CONFIG, model_shape_check(&s));
    s = resolve("llama3", "8B");
    s.scaling.high_frequency_factor = 1;
    CHECK_STATUS(CONFIG, model_shape_check(&s));
    CHECK_MESSAGE("model.rope_low_freq_factor");
}
