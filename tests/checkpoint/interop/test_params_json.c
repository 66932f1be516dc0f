// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/meta.h"
#include "checkpoint/interop/params_json.h"
#include "test.h"

#include <unistd.h>

#define FOLDER "tests/checkpoint/data/meta-llama3"

static enum status read_params(const char *json, struct model_shape *s)
{
    const char *path = test_path(test_folder(), "params.json");
    struct tensor_slices p;
    CHECK_STATUS(OK, file_write(path, json, strlen(json)));
    CHECK_STATUS(OK, meta_open(&p, FOLDER, NULL));
    enum status st = params_json_read(path, &p, NULL, s);
    tensor_slices_release(&p);
    return st;
}

TEST(params_json_is_completed_from_the_tensors)
{
    struct model_shape s;
    CHECK_STATUS(OK, read_params("{\"n_layers\": 2, \"n_heads\": 4, \"n_kv_heads\": 2, "
                                 "\"vocab_size\": -1, \"norm_eps\": 1e-6}",
                                 &s));
    CHECK(s.V == 40 && s.D == 16 && s.F == 24 && s.K == 4 && s.G == 2 && !s.tied);
    CHECK(s.rope_theta == 10000 && s.scaling.factor == 0 && s.norm_eps == 1e-6);
    CHECK_STATUS(OK, read_params("{\"n_layers\": 2, \"n_heads\": 4, \"n_kv_heads\": null, "
                                 "\"use_scaled_rope\": true, \"rope_theta\": 500000.0}",
                                 &s));
    CHECK(s.G == 4 && s.scaling.factor == 8 && s.scaling.original_context == 8192);
    CHECK(s.scaling.low_frequency_factor == 1 && s.scaling.high_frequency_factor == 4);
}

/* Meta's code has these defaults, and passes max_seq_len itself. */
TEST(params_json_omits_rope_scaling_defaults)
{
    for (int tied = 0; tied < 2; tied++) {
        struct model_shape s = {.V = 1, .D = 8, .L = 1, .H = 1, .G = 1, .K = 8, .F = 3};
        struct text t = {0};
        s.norm_eps = 1e-5, s.rope_theta = 5e5, s.max_context = 4096, s.tied = tied;
        params_json_write(&s, &t);
        CHECK(!strstr(t.data, "rope_scal") && !strstr(t.data, "use_scaled_rope"));
        CHECK(!strstr(t.data, "max_seq_len"));
        text_clear(&t);
        s.scaling = (struct rope_scaling){.factor = tied ? 32 : 8,
                                          .low_frequency_factor = 1,
                                          .high_frequency_factor = 4,
                                          .original_context = 8192};
        params_json_write(&s, &t);
        CHECK(strstr(t.data, "\"use_scaled_rope\": true") &&
              !strstr(t.data, "rope_scaling_factor"));
        text_clear(&t);
        s.scaling.factor = tied ? 8 : 32;
        params_json_write(&s, &t);
        CHECK(strstr(t.data, tied ? "\"rope_scaling_factor\": 8" : "\"rope_scaling_factor\": 32"));
        CHECK(!strstr(t.data, "_freq_factor") && !strstr(t.data, "rope_original"));
        text_release(&t);
    }
}

/* Reads the shape of a model with this embedding and head. */
static enum status read_tied(float *embedding, float *head, const char *json, struct model_shape *s)
{
    const char *path = test_path(test_folder(), "params.json");
    float ones[40] = {0};
    struct file_map none = {0};
    struct tensor_slices p = {.path = heap_string("x", 1)};
    const struct {
        struct tensor_name name;
        float *numbers;
        int64_t rows, columns;
    } all[] = {{{PARAM_embed, -1, TENSOR_WEIGHT}, embedding, 3, 8},
               {{PARAM_head, -1, TENSOR_WEIGHT}, head, 3, 8},
               {{PARAM_last_norm, -1, TENSOR_WEIGHT}, ones, 8, 0},
               {{PARAM_mlp_gate, 0, TENSOR_WEIGHT}, ones, 5, 8}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct torch_tensor t = {.name = (char *)(uintptr_t) "t",
                                 .dtype = SAFETENSORS_F32,
                                 .num_dims = all[i].columns ? 2 : 1,
                                 .shape = {all[i].rows, all[i].columns},
                                 .strides = {all[i].columns ? all[i].columns : 1, 1},
                                 .data = (const unsigned char *)all[i].numbers};
        if (all[i].numbers)
            CHECK_STATUS(
                OK, tensor_slices_add(&p, &all[i].name, &(struct file_slice){&t, &none, 0, 0}));
    }
    CHECK_STATUS(OK, tensor_slices_finish(&p));
    CHECK_STATUS(OK, file_write(path, json, strlen(json)));
    enum status st = params_json_read(path, &p, NULL, s);
    tensor_slices_release(&p);
    return st;
}

TEST(tied_model_has_llama_3_2s_rope_factor_32)
{
    static const char json[] = "{\"dim\": 8, \"n_layers\": 1, \"n_heads\": 1, "
                               "\"use_scaled_rope\": true, \"rope_theta\": 500000.0}";
    static const char eight[] = "{\"model\": {\"dim\": 8, \"n_layers\": 1, \"n_heads\": 1, "
                                "\"use_scaled_rope\": true, \"rope_scaling_factor\": 8}}";
    float a[24], b[24];
    struct model_shape s;
    for (int i = 0; i < 24; i++) a[i] = b[i] = (float)i;
    CHECK_STATUS(OK, read_tied(a, NULL, json, &s));
    CHECK(s.tied && s.scaling.factor == 32 && s.scaling.high_frequency_factor == 4);
    CHECK_STATUS(OK, read_tied(a, a, json, &s));
    CHECK(s.tied && s.scaling.factor == 32);
    CHECK_STATUS(OK, read_tied(a, b, json, &s));
    CHECK(s.tied && s.scaling.factor == 32 && s.max_context == 131072);
    CHECK_STATUS(OK, read_tied(a, b, eight, &s));
    CHECK(s.tied && s.scaling.factor == 8);
    b[23] += 1;
    CHECK_STATUS(OK, read_tied(a, b, json, &s));
    CHECK(!s.tied && s.scaling.factor == 8 && s.scaling.original_context == 8192);
}

TEST(invalid_params_json_is_rejected_by_key)
{
    struct model_shape s;
    CHECK_STATUS(DATA, read_params("{\"n_layers\": 2}", &s));
    CHECK_MESSAGE("n_heads");
    CHECK_STATUS(DATA, read_params("{\"n_layers\": 2, \"n_heads\": 4, \"dim\": 32}", &s));
    CHECK_MESSAGE("\"dim\" is 32, but the tensors have 16");
    CHECK_STATUS(DATA, read_params("{\"n_layers\": 2, \"n_heads\": 0}", &s));
    CHECK_STATUS(DATA, read_params("{\"n_layers\": 2, \"n_heads\": 4, \"rope_theta\": -1}", &s));
    CHECK_MESSAGE("\"rope_theta\": expected a number above 0");
    CHECK_STATUS(CONFIG, read_params("{\"n_layers\": 2, \"n_heads\": 4, \"n_kv_heads\": 3}", &s));
    CHECK_STATUS(DATA, read_params("[]", &s));
}

TEST(params_json_round_trips)
{
    struct model_shape s, again;
    struct text t = {0};
    CHECK_STATUS(OK, checkpoint_read_shape(FOLDER, &s));
    s.scaling.factor = 32, s.scaling.high_frequency_factor = 2.5;
    s.scaling.original_context = 777, s.rope_theta = 12345.678;
    params_json_write(&s, &t);
    CHECK_STATUS(OK, read_params(t.data, &again));
    CHECK(!memcmp(&s.scaling, &again.scaling, sizeof s.scaling));
    CHECK(again.rope_theta == s.rope_theta && again.norm_eps == s.norm_eps && again.G == 2);
    text_release(&t);
}

/* h = int(int(8 D / 3) multiplier), rounded up to a multiple of 1. */
TEST(metas_formula_gives_the_feed_forward_width)
{
    for (int D = 8; D < 20000; D += 104)
        for (int F = 3; F < 60000; F += 1999) {
            struct model_shape s = {.V = 1, .D = D, .L = 1, .H = 1, .G = 1, .K = D, .F = F};
            struct text t = {0};
            s.norm_eps = 1e-5, s.rope_theta = 1e4, s.max_context = 1;
            params_json_write(&s, &t);
            double by = strtod(strstr(t.data, "multiplier\": ") + 13, NULL);
            CHECK((int)(by * (double)(2 * (4 * (int64_t)D) / 3)) == F);
            text_release(&t);
        }
}

TEST(truncated_params_json_is_rejected)
{
    static const char whole[] = "{\"n_layers\": 2, \"n_heads\": 4, \"rope_theta\": 5e5, "
                                "\"use_scaled_rope\": true}";
    const char *path = test_path(test_folder(), "params.json");
    struct model_shape s;
    struct tensor_slices p;
    CHECK_STATUS(OK, file_write(path, whole, sizeof whole - 1));
    CHECK_STATUS(OK, meta_open(&p, FOLDER, NULL));
    CHECK_STATUS(OK, params_json_read(path, &p, NULL, &s));
    for (size_t len = sizeof whole - 1; len-- > 0;) {
        CHECK(!truncate(path, (off_t)len));
        CHECK_STATUS(DATA, params_json_read(path, &p, NULL, &s));
        CHECK_MESSAGE("params.json: not valid JSON");
    }
    tensor_slices_release(&p);
}
