// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "perf/op.h"
#include "test.h"

#define SMALL                                                                                      \
    "--rounds", "1", "--megabytes", "1", "model.n_layers=2", "model.dim=32", "model.n_heads=4",    \
        "model.n_kv_heads=2", "model.ffn_hidden=48", "model.vocab_size=70",                        \
        "training.local_batch_size=2", "training.seq_len=24"

static double sum_of(const struct json *list, const char *key)
{
    double sum = 0;
    for (const struct json *v = json_first(list); v; v = json_next(v))
        sum += json_number(json_get(v, key));
    return sum;
}

static bool names(const struct json *list, const char *name)
{
    for (const struct json *v = json_first(list); v; v = json_next(v))
        if (!strcmp(json_string(json_get(v, "name")), name)) return true;
    return false;
}

static void check_ceilings(const struct json *c)
{
    int count = 0;
    for (const struct json *kind = json_first(c); kind; kind = json_next(kind))
        for (const struct json *v = json_first(kind); v; v = json_next(v), count++) {
            CHECK(json_number(json_get(v, "one")) > 0);
            CHECK(json_number(json_get(v, "all")) > 0);
        }
    CHECK(count == 8);
}

TEST(bench_times_every_operation_and_its_parts_sum_to_the_step)
{
    struct text out = {0}, kept = {0};
    struct json *b;
    const char *path = test_path(test_folder(), "bench.json");
    CHECK(LLAMERO(&out, NULL, "bench", "--json", "--output", path, SMALL,
                  "training.global_batch_size=4", "model.converters=[\"float8\"]",
                  "model.sliding_window=8") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "bench", &b));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &kept));
    CHECK(!strcmp(kept.data, out.data));
    const struct json *step = json_get(b, "step"), *parts = json_get(step, "parts");
    const struct json *operations = json_get(b, "operations");
    for (enum op_id op = 0; op < OP_COUNT; op++) { /* without context parallelism, on a CPU */
        bool is_called = op != OP_bias_forward && op != OP_bias_backward &&
                         op != OP_context_bounds && op != OP_kv_append && op != OP_unsplit &&
                         op != OP_cast && op != OP_axpby && op != OP_divide_by_norm &&
                         op != OP_matrix_polynomial && op != OP_apply_update &&
                         op != OP_update_ema && op != OP_fused_amax && op != OP_fused_quantize &&
                         op != OP_adamw_8bit && op != OP_accumulate_gradients;
        CHECK(names(operations, op_name(op)) == is_called);
        CHECK(names(parts, op_name(op)));
    }
    CHECK(names(parts, "zero gradients") && names(parts, "rest"));
    CHECK_NEAR(sum_of(parts, "share"), 1, 1e-4);
    double mean = json_number(json_get(step, "mean"));
    CHECK_NEAR(sum_of(parts, "seconds") / mean, 1, 1e-6);
    CHECK(sum_of(operations, "step_seconds") < mean);
    CHECK(json_number(json_get(step, "tokens")) == 4 * 24);
    CHECK(json_number(json_get(step, "mfu")) > json_number(json_get(step, "mfu_causal")));
    CHECK(json_number(json_get(step, "mfu_causal")) > 0);
    CHECK(json_number(json_get(step, "burst_share")) > 0);
    /* 6 for each weight of a norm and token; of attention those of keys before the window and the
     * keys of each window that lie before the row */
    CHECK_NEAR(json_number(json_get(step, "flops")) - json_number(json_get(step, "flops_causal")),
               (6.0 * 5 * 32 + 6.0 * 2 * 32 * 8 * 8 / 24) * (4 * 24), 1e-6);
    CHECK(json_count(json_get(step, "seconds")) == 1);
    for (const struct json *v = json_first(operations); v; v = json_next(v)) {
        CHECK(json_number(json_get(v, "seconds")) > 0 && json_number(json_get(v, "share")) > 0);
        CHECK(json_number(json_get(v, "calls")) >= 1 && json_number(json_get(v, "bytes")) > 0);
        bool is_gemm = json_number(json_get(v, "flops")) > 0;
        CHECK(is_gemm == !strcmp(json_string(json_get(v, "ceiling")), "peak"));
    }
    check_ceilings(json_get(b, "ceilings"));
    json_free(b);
    text_release(&out);
    text_release(&kept);
}

TEST(bench_counts_half_of_the_attention_for_causal_flops)
{
    struct text out = {0};
    struct json *b;
    CHECK(LLAMERO(&out, NULL, "bench", "--json", SMALL) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "bench", &b));
    const struct json *step = json_get(b, "step");
    /* 6 for each weight of a norm and token, and half of the attention */
    CHECK_NEAR(json_number(json_get(step, "flops")) - json_number(json_get(step, "flops_causal")),
               (6.0 * 5 * 32 + 6.0 * 2 * 32 * 24) * (2 * 24), 1e-6);
    json_free(b);
    text_release(&out);
}

TEST(bench_prints_tables_for_people)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "bench", SMALL, "training.mixed_precision_param=float32") == 0);
    CHECK(strstr(out.data, "float32 in registers") && strstr(out.data, "memory: copy"));
    CHECK(strstr(out.data, "linear_backward_weight") && strstr(out.data, "24 tokens, float32"));
    CHECK(strstr(out.data, "tokens/s") && strstr(out.data, "MFU"));
    text_release(&out);
}

#if defined(__x86_64__)
/* oneDNN prints the best ISA that it may use, and its choice for each GEMM. */
TEST(device_cpu_also_limits_onednn)
{
    struct text out = {0};
    setenv("ONEDNN_VERBOSE", "1", 1), setenv("DNNL_VERBOSE", "1", 1);
    CHECK(LLAMERO(&out, NULL, "bench", SMALL, "training.mixed_precision_param=float32",
                  "device.cpu=avx2") == 0);
    unsetenv("ONEDNN_VERBOSE"), unsetenv("DNNL_VERBOSE");
    CHECK(strstr(out.data, "isa:Intel AVX2\n") && !strstr(out.data, "avx512"));
    text_release(&out);
}
#endif

TEST(bench_compares_autotuned_gemms_with_the_default_and_saves_the_choice)
{
    struct text out = {0}, setting = {0};
    struct json *b;
    const char *path = test_path(test_folder(), "gemm.json");
    text_addf(&setting, "device.tune_file=%s", path);
    CHECK(LLAMERO(&out, NULL, "bench", "--json", SMALL, "device.tune_gemm=true", setting.data) ==
          0);
    CHECK(file_exists(path));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "bench", &b));
    CHECK(json_number(json_get(b, "tuned")) > 0);
    const struct json *operations = json_get(b, "operations");
    for (const struct json *v = json_first(operations); v; v = json_next(v)) {
        bool is_linear = !strncmp(json_string(json_get(v, "name")), "linear_", 7);
        CHECK(json_is_number(json_get(v, "tuned")) == is_linear);
        CHECK(json_is_number(json_get(v, "default_seconds")) == is_linear);
    }
    json_free(b);
    CHECK(LLAMERO(&out, NULL, "bench", SMALL, "device.tune_gemm=true", setting.data) == 0);
    CHECK(strstr(out.data, "autotuned GEMMs") && strstr(out.data, "all GEMMs of a step"));
    text_release(&out), text_release(&setting);
}

TEST(bench_reads_a_configuration_and_rejects_invalid_flags)
{
    struct text err = {0}, out = {0};
    const char *path = test_path(test_folder(), "run.toml");
    const char *toml = "[model]\nvocab_size = 90\n";
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    CHECK(LLAMERO(&out, NULL, "bench", path, "--rounds", "1", "--megabytes", "1",
                  "model.n_layers=1", "model.dim=16", "model.n_heads=2", "model.n_kv_heads=2",
                  "model.ffn_hidden=16", "training.local_batch_size=1", "training.seq_len=8",
                  "validation.enable=true", "data.validation_share=0.1") == 0);
    CHECK(strstr(out.data, "vocabulary 90"));
    CHECK(LLAMERO(NULL, &err, "bench", "--megabytes", "1000000000") == 64);
    CHECK(LLAMERO(NULL, &err, "bench", "model.n_heads=7") == 78);
    CHECK(LLAMERO(NULL, &err, "bench", "/nowhere.toml") == 66);
    text_release(&err);
    text_release(&out);
}
