// SPDX-License-Identifier: Apache-2.0
#include "perf/layouts.h"

#include "test.h"

void layouts_open(struct layouts *l, int ranks, int64_t step_rows, const char *const *settings,
                  int num_settings)
{
    const char *all[32] = {"model.dim=512",          "model.n_layers=8",
                           "model.n_heads=4",        "model.n_kv_heads=2",
                           "model.ffn_hidden=1024",  "model.vocab_size=2000",
                           "training.seq_len=1024",  "training.dataset_path=mock",
                           "device.hardware=mi250x", "device.node_ranks=4"};
    int count = 10;
    while (num_settings--) all[count++] = *settings++;
    *l = (struct layouts){0};
    CHECK_STATUS(OK, config_load(&l->config, NULL, all, count));
    CHECK_STATUS(OK, model_shape_resolve(&l->shape, &l->config.model, 0));
    described_gpu_open(&l->gpu, &l->config.device, &l->model.machine);
    l->model.gpu = &l->gpu;
    l->model.hardware = device_config_hardware(&l->config.device);
    l->model.shape = &l->shape;
    l->search = (struct layout_search){.all = {&l->config, &l->shape, ranks, step_rows},
                                       .model = &l->model};
}

void layouts_close(struct layouts *l)
{
    described_gpu_close(&l->gpu);
    config_release(&l->config);
}
