// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "comms/self/self.h"

#include "system/runs.h"
#include "train/run.h"

void training_open(struct training *t, const char *const *settings)
{
    static const char *const tiny[] = {
        "model.dim=16",         "model.n_layers=2",
        "model.n_heads=4",      "model.n_kv_heads=2",
        "model.ffn_hidden=24",  "training.local_batch_size=2",
        "training.seq_len=16",  "training.mixed_precision_param=float32",
        "data.tokenizer=bytes", "data.streams=4",
        "data.prefetch=0",      "optimizer.lr=1e-2",
        "training.steps=50",    "lr_scheduler.warmup_steps=2",
    };
    const char *all[64];
    int n = 0;
    char path[256];
    for (; n < (int)(sizeof tiny / sizeof *tiny); n++) all[n] = tiny[n];
    while (*settings) all[n++] = *settings++;
    snprintf(path, sizeof path, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(path, '=') + 1, 60000);
    all[n++] = path;
    *t = (struct training){0};
    CHECK_STATUS(OK, config_load(&t->config, NULL, all, n));
    CHECK_STATUS(OK, config_check(&t->config, 1));
    struct comm self = comm_self();
    t->machine = (struct machine){.ops = &ops_cpu_reference, .mesh = mesh_alone()};
    CHECK_STATUS(OK, groups_open(&t->machine.groups, &t->machine.mesh, &self));
    CHECK_STATUS(OK, cpu_queue_open(&t->machine.on, 1, 0));
    CHECK_STATUS(OK, tokenizer_open(&t->tokenizer, "bytes", &t->config.tokenizer));
    struct model_shape shape;
    CHECK_STATUS(OK,
                 model_shape_resolve(&shape, &t->config.model, tokenizer_vocab_size(t->tokenizer)));
    t->data = run_data_config(&t->config, &t->source);
    struct loader_options o =
        run_loader_options(&t->config, &t->machine.mesh, &t->data, t->tokenizer, shape.V);
    CHECK_STATUS(OK, loader_open(&t->loader, &o));
    CHECK_STATUS(OK, trainer_open(&t->trainer, &t->config, &shape, &t->machine));
    struct model *m = &t->trainer.model;
    params_start(&m->layout, &t->trainer.pieces, &m->shape, 1, t->trainer.weights);
    CHECK_STATUS(OK, trainer_sync(&t->trainer));
}

void training_close(struct training *t)
{
    trainer_close(&t->trainer);
    loader_close(t->loader);
    tokenizer_close(t->tokenizer);
    cpu_queue_close(t->machine.on);
    groups_close(&t->machine.groups);
    config_release(&t->config);
}
