// SPDX-License-Identifier: Apache-2.0
#include "perf/device_bench.h"

#include "backends/cpu/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "machine/machine.h"
#include "tensor/strict_device.h"
#include "test.h"

/* The ceiling of all GEMMs, Muon's too, is bf16's. */
static void check_ceilings(const struct json *root)
{
    double peak = json_number(json_get(json_get(root, "ceilings"), "bf16"));
    const struct json *operations = json_get(root, "operations");
    int num_gemms = 0;
    for (size_t i = 0; i < json_count(operations); i++) {
        const struct json *o = json_item(operations, i);
        double rate = json_number(json_get(o, "rate")), share = json_number(json_get(o, "share"));
        if (strncmp(json_string(json_get(o, "name")), "linear_", 7) != 0) continue;
        num_gemms++;
        CHECK(fabs(share * peak / rate - 1) < 1e-3);
    }
    CHECK(num_gemms > 0);
}

TEST(device_bench_measures_ceilings_operations_and_steps)
{
    static const char *const settings[] = {"model.dim=16",
                                           "model.n_layers=2",
                                           "model.n_heads=4",
                                           "model.n_kv_heads=2",
                                           "model.ffn_hidden=24",
                                           "model.vocab_size=96",
                                           "training.seq_len=16",
                                           "training.local_batch_size=1",
                                           "training.dataset_path=none",
                                           "training.mixed_precision_param=bfloat16",
                                           "optimizer.name=Muon"};
    struct config config = {0};
    struct machine m = {0};
    struct model_shape shape;
    struct op_calls calls;
    struct text table = {0}, json = {0}, file = {0};
    CHECK_STATUS(OK, config_load(&config, NULL, settings, sizeof settings / sizeof *settings));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &config.model, 0));
    CHECK_STATUS(OK, machine_alone(&m));
    CHECK_STATUS(OK, cpu_queue_open(&m.queue, 1, 0));
    strict_open(m.queue, &ops_cpu_reference, true);
    m.ops = &strict_ops;
    m.hardware = hardware_row(HARDWARE_h100);
    CHECK_STATUS(OK, op_calls_record_step(&calls, &config, &shape, m.ops, false));
    const char *path = test_path(test_folder(), "bench.json");
    struct device_bench b = {&config, &m, &shape, &calls, 2, 1 << 16, 1000, path};
    CHECK_STATUS(OK, device_bench_run(&b, &table, &json));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &file));
    CHECK(!strcmp(file.data, json.data));
    CHECK(strstr(table.data, "attention_backward") && strstr(table.data, "the GEMM above"));
    struct json *root;
    CHECK_STATUS(OK, json_parse(json.data, json.len, "bench", &root));
    CHECK(json_number(json_get(json_get(root, "ceilings"), "side")) == 64);
    CHECK(json_count(json_get(root, "operations")) == calls.count);
    check_ceilings(root);
    CHECK(json_number(json_get(json_get(root, "step"), "tokens_per_second")) > 0);
    CHECK(json_count(json_get(json_get(root, "step"), "seconds")) == 2);
    CHECK(json_number(json_get(root, "parameters")) == 1000);
    CHECK(json_true(json_get(root, "complete")));
    json_free(root);
    text_release(&table), text_release(&json), text_release(&file);
    op_calls_release(&calls);
    strict_close(m.queue);
    cpu_queue_close(m.queue);
    groups_close(&m.groups);
    config_release(&config);
}
