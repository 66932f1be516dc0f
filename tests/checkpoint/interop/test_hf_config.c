// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/hf_family.h"

#include "checkpoint/rig.h"

#include <unistd.h>

/* The required keys, then `more`. */
static enum status read_type_with(const char *type, const char *more, struct model_shape *s)
{
    struct text t = {0};
    const char *path = test_path(test_folder(), "config.json");
    text_addf(&t,
              "{\"model_type\": \"%s\", \"hidden_size\": 64, \"intermediate_size\": 96,"
              "\"num_hidden_layers\": 3, \"num_attention_heads\": 8, \"vocab_size\": 100%s}",
              type, more);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
    return hf_config_read(path, s);
}

static enum status read_with(const char *more, struct model_shape *s)
{
    return read_type_with("llama", more, s);
}

#define LLAMA3                                                                                     \
    "\"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"                       \
    "\"original_max_position_embeddings\": 8192"

static bool is_stretched(const struct model_shape *s)
{
    return s->scaling.factor == 32 && s->scaling.low_frequency_factor == 1 &&
           s->scaling.high_frequency_factor == 4 && s->scaling.original_context == 8192;
}

TEST(missing_config_keys_have_transformers_defaults)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_with("", &s));
    CHECK(s.D == 64 && s.F == 96 && s.L == 3 && s.H == 8 && s.V == 100);
    CHECK(s.G == 8 && s.K == 8 && s.max_context == 2048 && !s.tied);
    CHECK(s.rope_theta == 10000 && s.norm_eps == 1e-6 && s.scaling.factor == 0);
    CHECK_STATUS(OK, read_with(",\"num_key_value_heads\": null, \"head_dim\": null,"
                               "\"rope_scaling\": null, \"rope_theta\": null,"
                               "\"attention_bias\": false, \"architectures\": null",
                               &s));
    CHECK(s.G == 8 && s.K == 8 && s.rope_theta == 10000);
}

TEST(objective_and_token_ids_of_config_json_are_read_as_written)
{
    static const struct hf_usage usages[] = {{1, 2, HF_CAUSAL_UNSET, 0, false},
                                             {-1, -1, HF_CAUSAL_FALSE, 0.15, false},
                                             {0, 9, HF_CAUSAL_TRUE, 0, false},
                                             {0, 9, HF_CAUSAL_FALSE, 0, true}};
    const struct model_shape shape = {.V = 9, .D = 8, .L = 1, .H = 2, .G = 2, .K = 4, .F = 12};
    const char *path = test_path(test_folder(), "config.json");
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++) {
        const struct hf_usage *want = &usages[i];
        struct hf_usage got;
        struct text t = {0};
        hf_config_write(&shape, "float32", want, &t);
        CHECK(!strstr(t.data, "is_causal") == !want->is_causal);
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK_STATUS(OK, hf_config_read_usage(path, &got));
        CHECK(got.bos == want->bos && got.eos == want->eos && got.is_causal == want->is_causal);
        CHECK(fabs(got.mlm_probability - want->mlm_probability) < 1e-15);
        CHECK(got.is_diffusion == want->is_diffusion);
        text_release(&t);
    }
}

TEST(old_and_new_rope_keys_are_equivalent)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_with(",\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\":"
                               "\"llama3\"," LLAMA3 "}, \"torch_dtype\": \"bfloat16\"",
                               &s));
    CHECK(s.rope_theta == 500000 && is_stretched(&s));
    CHECK_STATUS(OK, read_with(",\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\":"
                               "\"llama3\"," LLAMA3 "}, \"dtype\": \"bfloat16\"",
                               &s));
    CHECK(s.rope_theta == 500000 && is_stretched(&s));
    CHECK_STATUS(OK, read_with(",\"rope_scaling\": {\"type\": \"llama3\"," LLAMA3 "}", &s));
    CHECK(s.rope_theta == 10000 && is_stretched(&s));
    CHECK_STATUS(OK, read_with(",\"rope_parameters\": {\"rope_type\": \"default\","
                               "\"rope_theta\": 7.5}, \"rope_scaling\": null",
                               &s));
    CHECK(s.rope_theta == 7.5 && s.scaling.factor == 0);
}

TEST(rope_keys_that_contradict_each_other_are_rejected)
{
    static const char *const others[] = {
        "{\"rope_type\": \"default\"}", "{\"rope_type\": \"linear\", \"factor\": 2.0}",
        "{\"type\": \"llama3\", \"factor\": 4.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}",
        "{\"rope_theta\": 7.5, \"type\": \"llama3\"," LLAMA3 "}"};
    struct model_shape s;
    struct text keys = {0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        text_clear(&keys);
        text_addf(
            &keys,
            ",\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\"," LLAMA3
            "}, \"rope_scaling\": %s",
            others[i]);
        CHECK_STATUS(DATA, read_with(keys.data, &s));
        CHECK_MESSAGE("\"rope_parameters\" and \"rope_scaling\" describe different models");
    }
    CHECK_STATUS(OK, read_with(",\"rope_theta\": 500000.0, \"rope_parameters\": {\"rope_theta\": "
                               "500000.0, \"rope_type\": \"llama3\"," LLAMA3
                               "}, \"rope_scaling\": {\"type\": \"llama3\"," LLAMA3 "}",
                               &s));
    CHECK(s.rope_theta == 500000 && is_stretched(&s));
    text_release(&keys);
}

TEST(config_supports_gqa_any_even_head_dim_and_tied_embeddings)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_with(",\"num_key_value_heads\": 2, \"head_dim\": 20,"
                               "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-05,"
                               "\"max_position_embeddings\": 131072",
                               &s));
    CHECK(s.G == 2 && s.K == 20 && s.tied && s.norm_eps == 1e-5 && s.max_context == 131072);
}

TEST(unsupported_configs_are_rejected_with_the_reason)
{
    static const char *const cases[][2] = {
        {",\"hidden_act\": \"gelu\"", "hidden_act \"gelu\""},
        {",\"architectures\": [\"LlamaForSequenceClassification\"]",
         "architecture LlamaForSequenceClassification"},
        {",\"architectures\": [7]", "must be LlamaForCausalLM"},
        {",\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2.0}", "rope type \"ntk\""},
        {",\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1],"
         "\"long_factor\": [2], \"original_max_position_embeddings\": 9}",
         "rope type \"longrope\" is not supported in a llama"},
        {",\"partial_rotary_factor\": 0.5", "partial_rotary_factor 0.5"},
    };
    struct model_shape s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(UNSUPPORTED, read_with(cases[i][0], &s));
        CHECK_MESSAGE("config.json: ");
        CHECK_MESSAGE(cases[i][1]);
    }
    const char *path = test_path(test_folder(), "config.json");
    CHECK_STATUS(OK, file_write(path, "{\"model_type\": \"olmo3\"}", 23));
    CHECK_STATUS(UNSUPPORTED, hf_config_read(path, &s));
    CHECK_MESSAGE(
        "model_type \"olmo3\" is not supported: its layers have different kinds of "
        "attention; must be llama, qwen2, qwen3, mistral, granite, smollm3, olmo2 or phi3");
}

TEST(biases_are_read_from_the_keys_of_their_family)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_with(",\"attention_bias\": true", &s));
    CHECK(s.qkv_bias && s.out_bias && !s.mlp_bias);
    CHECK_STATUS(OK, read_with(",\"mlp_bias\": true", &s));
    CHECK(!s.qkv_bias && s.mlp_bias);
    CHECK_STATUS(OK, read_type_with("qwen2",
                                    ",\"num_key_value_heads\": 4, \"sliding_window\": 4096,"
                                    "\"use_sliding_window\": false, \"max_window_layers\": 28",
                                    &s));
    CHECK(s.qkv_bias && !s.out_bias && !s.mlp_bias && !s.qk_norm);
    CHECK(s.max_context == 32768 && s.K * s.H == s.D);
    CHECK_STATUS(
        UNSUPPORTED,
        read_type_with("qwen2", ",\"num_key_value_heads\": 4, \"use_sliding_window\": true", &s));
    CHECK_MESSAGE("\"use_sliding_window\" is true");
    CHECK_STATUS(
        OK, read_type_with("qwen3", ",\"num_key_value_heads\": 4, \"attention_bias\": true", &s));
    CHECK(s.qkv_bias && s.out_bias && s.qk_norm);
}

TEST(qwen3_is_a_llama_with_qk_norm)
{
    static const char *const cases[][2] = {
        {",\"num_key_value_heads\": 4, \"mlp_bias\": true",
         "\"mlp_bias\" is true: Qwen3ForCausalLM does not have"},
        {",\"use_sliding_window\": true", "\"use_sliding_window\" is true"},
        {",\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "\"layer_types\" has sliding_attention"},
        {",\"layer_types\": [3]", "\"layer_types\" has (not a string)"},
        {",\"architectures\": [\"LlamaForCausalLM\"]",
         "architecture LlamaForCausalLM is not supported: must be Qwen3ForCausalLM"},
    };
    struct model_shape s;
    CHECK_STATUS(OK, read_type_with("qwen3",
                                    ",\"num_key_value_heads\": 4, \"head_dim\": 16,"
                                    "\"architectures\": [\"Qwen3ForCausalLM\"],"
                                    "\"use_sliding_window\": false, \"sliding_window\": null,"
                                    "\"max_window_layers\": 36, \"rms_norm_eps\": 1e-06,"
                                    "\"layer_types\": [\"full_attention\"]",
                                    &s));
    CHECK(s.qk_norm && s.H == 8 && s.G == 4 && s.K == 16 && s.max_context == 32768);
    CHECK_STATUS(OK, read_type_with("qwen3", ",\"num_key_value_heads\": null", &s));
    CHECK(s.qk_norm && s.G == 8 && s.K == 128);
    CHECK_STATUS(CONFIG, read_type_with("qwen3", "", &s)); /* 32 key/value heads by default */
    CHECK_MESSAGE("model.n_kv_heads = 32");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(UNSUPPORTED, read_type_with("qwen3", cases[i][0], &s));
        CHECK_MESSAGE(cases[i][1]);
    }
    CHECK_STATUS(OK, read_with(",\"use_sliding_window\": true", &s)); /* not a key of a Llama */
    CHECK(!s.qk_norm);
}

TEST(mistral_with_a_window_keeps_it_and_without_one_is_a_llama)
{
    static const char *const cases[][2] = {
        {",\"sliding_window\": null, \"attention_bias\": true", "\"attention_bias\" is true"},
        {",\"sliding_window\": null, \"architectures\": [\"LlamaForCausalLM\"]",
         "architecture LlamaForCausalLM is not supported: must be MistralForCausalLM"},
    };
    struct model_shape s;
    CHECK_STATUS(OK, read_type_with("mistral",
                                    ",\"architectures\": [\"MistralForCausalLM\"],"
                                    "\"sliding_window\": null, \"num_key_value_heads\": 2",
                                    &s));
    CHECK(!s.qk_norm && s.G == 2 && s.max_context == 131072 && s.K * s.H == s.D);
    CHECK_STATUS(OK, read_type_with("mistral", ",\"sliding_window\": null", &s));
    CHECK(s.G == 8);
    CHECK_STATUS(
        OK,
        read_type_with("mistral", ",\"sliding_window\": 64, \"max_position_embeddings\": 64", &s));
    CHECK(s.max_context == 64 && s.window == 64);
    CHECK(!strcmp(hf_family_of(&s)->model_type, "mistral"));
    CHECK_STATUS(OK, read_type_with("mistral", "", &s)); /* Transformers' default */
    CHECK(s.window == 4096);
    CHECK_STATUS(
        OK,
        read_type_with("mistral", ",\"sliding_window\": 63, \"max_position_embeddings\": 64", &s));
    CHECK(s.window == 63 && !strcmp(hf_family_of(&s)->model_type, "mistral"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(UNSUPPORTED, read_type_with("mistral", cases[i][0], &s));
        CHECK_MESSAGE(cases[i][1]);
    }
    CHECK_STATUS(DATA, read_type_with("mistral", ",\"sliding_window\": \"long\"", &s));
    CHECK_MESSAGE("\"sliding_window\"");
}

TEST(phi3_rotates_a_part_of_each_head_and_has_no_window_by_default)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_type_with("phi3", "", &s));
    CHECK(!s.window && s.partial_rotary_factor == 0 && s.norm_eps == 1e-5);
    CHECK(s.max_context == 4096 && !strcmp(hf_family_of(&s)->model_type, "llama"));
    CHECK_STATUS(OK, read_type_with("phi3", ",\"partial_rotary_factor\": 0.6", &s));
    CHECK(model_shape_rotary_pairs(&s) == 2);
    CHECK_STATUS(OK, read_type_with("phi3",
                                    ",\"sliding_window\": 7, \"rope_parameters\": "
                                    "{\"rope_type\": \"default\", \"rope_theta\": 5,"
                                    "\"partial_rotary_factor\": 0.75}",
                                    &s));
    CHECK(s.window == 7 && s.rope_theta == 5 && model_shape_rotary_pairs(&s) == 3);
    CHECK_STATUS(DATA, read_type_with("phi3", ",\"partial_rotary_factor\": 1.5", &s));
    CHECK_MESSAGE("\"partial_rotary_factor\" is 1.5: must be at most 1");
    CHECK_STATUS(CONFIG, read_type_with("phi3", ",\"partial_rotary_factor\": 0.4", &s));
    CHECK_MESSAGE("model.partial_rotary_factor = 0.4: 3 of 8 coordinates of a head are an odd");
    CHECK_STATUS(CONFIG, read_type_with("phi3", ",\"partial_rotary_factor\": 0.1", &s));
    CHECK_MESSAGE("leaves no pair of 8 coordinates to rotate");
}

#define LONGROPE                                                                                   \
    ",\"original_max_position_embeddings\": 32, \"partial_rotary_factor\": 0.5,"                   \
    "\"rope_scaling\": {\"type\": \"%s\", \"short_factor\": [1, 1.5], \"long_factor\": [%s]}"

static enum status read_longrope(const char *type, const char *long_factors, struct model_shape *s)
{
    struct text more = {0};
    text_addf(&more, LONGROPE, type, long_factors);
    enum status st = read_type_with("phi3", more.data, s);
    text_release(&more);
    return st;
}

/* Written as versions of Transformers before 5 and since read it. */
TEST(longrope_of_phi3_round_trips)
{
    static const char *const types[] = {"longrope", "su"};
    struct model_shape s, got;
    struct json *root;
    const char *path = test_path(test_folder(), "config.json");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_STATUS(OK, read_longrope(types[i], "2, 3.5", &s));
        CHECK(s.scaling.method == ROPE_longrope && s.scaling.num_factors == 2);
        CHECK(s.scaling.factor == 128 && s.scaling.original_context == 32); /* 4096 / 32 */
        CHECK(s.scaling.short_factors[1] == 1.5 && s.scaling.long_factors[1] == 3.5);
    }
    for (int i = 0; i < 3; i++) {
        struct text t = {0};
        s.scaling.attention_factor = i == 1 ? 1.25 : 0, s.scaling.factor = i == 2 ? 7 : 128;
        s.partial_rotary_factor = 0.5;
        hf_config_write(&s, "float32", &(struct hf_usage){.bos = -1, .eos = 9}, &t);
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK_STATUS(OK, hf_config_read(path, &got));
        CHECK(rope_scaling_equals(&got.scaling, &s.scaling) && got.max_context == s.max_context);
        CHECK(strstr(t.data, "Phi3ForCausalLM"));
        CHECK_STATUS(OK, json_parse(t.data, t.len, "config", &root));
        const struct json *old = json_get(root, "rope_scaling");
        CHECK(json_string_is(json_get(old, "type"), "longrope"));
        CHECK(json_count(old) == 3 + (i > 0)); /* older versions accept only three keys */
        json_free(root);
        text_release(&t);
    }
    CHECK_STATUS(DATA, read_longrope("longrope", "2", &s));
    CHECK_MESSAGE("\"short_factor\" has 2 numbers, and \"long_factor\" 1");
    CHECK_STATUS(DATA, read_longrope("longrope", "2, \"x\"", &s));
    CHECK_MESSAGE("\"long_factor\": expected an array of numbers");
    CHECK_STATUS(
        UNSUPPORTED,
        read_type_with("phi3", ",\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", &s));
    CHECK_MESSAGE("rope type \"linear\" is not supported in a phi3: must be default or longrope");
}

TEST(missing_and_mistyped_config_keys_are_named)
{
    static const char *const cases[][2] = {
        {",\"head_dim\": \"x\"", "\"head_dim\""},
        {",\"head_dim\": 0", "\"head_dim\""},
        {",\"num_key_value_heads\": 2.5", "\"num_key_value_heads\""},
        {",\"rms_norm_eps\": \"small\"", "\"rms_norm_eps\": expected a number"},
        {",\"rms_norm_eps\": -1", "\"rms_norm_eps\": -1 is out of range"},
        {",\"rope_theta\": [1]", "\"rope_theta\": expected a number"},
        {",\"tie_word_embeddings\": \"yes\"", "\"tie_word_embeddings\": expected true or false"},
        {",\"attention_bias\": 1", "\"attention_bias\": expected true or false"},
        {",\"rope_scaling\": \"llama3\"", "\"rope_scaling\": expected an object"},
        {",\"rope_scaling\": {\"rope_type\": 3}", "\"rope_type\": expected a string"},
        {",\"rope_scaling\": {\"rope_type\": \"llama3\"}", "\"factor\": expected a number"},
        {",\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
         "\"high_freq_factor\": 4}",
         "\"original_max_position_embeddings\" is missing"},
        {",\"max_position_embeddings\": 3000000000", "\"max_position_embeddings\""},
    };
    struct model_shape s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(DATA, read_with(cases[i][0], &s));
        CHECK_MESSAGE("config.json: ");
        CHECK_MESSAGE(cases[i][1]);
    }
    const char *path = test_path(test_folder(), "config.json");
    CHECK_STATUS(OK, file_write(path, "[]", 2));
    CHECK_STATUS(DATA, hf_config_read(path, &s));
    CHECK_MESSAGE("\"model_type\" is missing");
    CHECK_STATUS(MISSING, hf_config_read(test_path(test_folder(), "config.json"), &s));
}

TEST(inconsistent_config_sizes_are_rejected)
{
    struct model_shape s;
    CHECK_STATUS(CONFIG, read_with(",\"num_key_value_heads\": 3", &s));
    CHECK_MESSAGE("config.json: ");
    CHECK_STATUS(CONFIG, read_with(",\"head_dim\": 7", &s));
    CHECK_STATUS(CONFIG, read_with(",\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8,"
                                   "\"low_freq_factor\": 4, \"high_freq_factor\": 1,"
                                   "\"original_max_position_embeddings\": 64}",
                                   &s));
}

TEST(config_json_round_trips)
{
    struct model_shape want = {.V = 301,
                               .D = 48,
                               .L = 5,
                               .H = 6,
                               .G = 3,
                               .K = 10,
                               .F = 77,
                               .rope_theta = 123456.789,
                               .norm_eps = 1.0 / 3e5,
                               .depth_init = true,
                               .max_context = 777};
    const struct rope_scaling scalings[] = {
        {0},
        {.factor = 8.25,
         .low_frequency_factor = 1.1,
         .high_frequency_factor = 4.3,
         .original_context = 555},
        {.factor = 3.5, .method = ROPE_linear},
        {.factor = 2, .original_context = 333, .method = ROPE_dynamic},
        {.factor = 4,
         .original_context = 99,
         .method = ROPE_yarn,
         .beta_fast = 7,
         .beta_slow = 0.5,
         .attention_factor = 1.25},
        {.factor = 4, .original_context = 99, .method = ROPE_yarn, .beta_fast = 32, .beta_slow = 1},
    };
    for (int way = 0; way < 50; way++) {
        struct model_shape got;
        struct text t = {0};
        struct json *root;
        want.tied = way & 1;
        want.D = way == 1 || way == 7 ? 50 : 48; /* 50: not a multiple of the heads */
        want.scaling = scalings[way < 48 ? way / 8 : 0];
        want.partial_rotary_factor = way < 48 ? 0 : 0.85;
        /* of dynamic scaling, config.json has the original context */
        want.max_context = want.scaling.method == ROPE_dynamic ? 666 : 777;
        want.qk_norm = (way & 6) == 2;
        want.qkv_bias = way & 4, want.out_bias = want.mlp_bias = (way & 6) == 6;
        want.window = way == 8 || way == 49 ? 33 : 0;
        want.post_norm = want.qk_norm && way >= 40;
        const char *path = test_path(test_folder(), "config.json");
        hf_config_write(&want, "float32", &(struct hf_usage){.bos = -1, .eos = 9}, &t);
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        CHECK_STATUS(OK, hf_config_read(path, &got));
        CHECK(got.V == want.V && got.D == want.D && got.L == want.L && got.H == want.H);
        CHECK(got.G == want.G && got.K == want.K && got.F == want.F && got.tied == want.tied);
        CHECK(got.rope_theta == want.rope_theta && got.norm_eps == want.norm_eps);
        CHECK(got.max_context == want.max_context && got.depth_init);
        CHECK(got.qk_norm == want.qk_norm && got.qkv_bias == want.qkv_bias);
        CHECK(got.window == want.window && got.post_norm == want.post_norm);
        CHECK(got.partial_rotary_factor == want.partial_rotary_factor);
        CHECK(!strstr(t.data, "MistralForCausalLM") == (way != 8 && way != 1));
        CHECK(!strstr(t.data, "GraniteForCausalLM") == (way != 7) && !model_shape_multiplies(&got));
        CHECK(!strstr(t.data, "Phi3ForCausalLM") == (way < 48));
        CHECK(got.out_bias == want.out_bias && got.mlp_bias == want.mlp_bias);
        CHECK(!strstr(t.data, "Qwen2ForCausalLM") == ((way & 6) != 4));
        CHECK(!strstr(t.data, "Qwen3ForCausalLM") == (!want.qk_norm || want.post_norm));
        CHECK(!strstr(t.data, "Olmo2ForCausalLM") == !want.post_norm);
        CHECK(rope_scaling_equals(&got.scaling, &want.scaling));
        CHECK_STATUS(OK, json_parse(t.data, t.len, "config", &root));
        CHECK(json_is_null(json_get(root, "bos_token_id")));
        CHECK(json_number(json_get(root, "eos_token_id")) == 9);
        json_free(root);
        text_release(&t);
    }
}

TEST(truncated_config_json_is_rejected)
{
    struct model_shape s;
    struct text t = {0};
    const char *path = test_path(test_folder(), "config.json");
    CHECK_STATUS(OK, file_read("tests/checkpoint/data/tied/config.json", 1 << 20, &t));
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK_STATUS(OK, hf_config_read(path, &s));
    for (size_t len = (size_t)(strrchr(t.data, '}') - t.data) + 1; len-- > 0;) {
        CHECK(!truncate(path, (off_t)len));
        CHECK_STATUS(DATA, hf_config_read(path, &s));
        CHECK_MESSAGE("config.json: not valid JSON");
    }
    text_release(&t);
}
