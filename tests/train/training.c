// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "system/runs.h"
#include "train/inputs.h"

enum status training_open_rank(struct training *t, const struct comm *world,
                               const char *const *settings, int num_settings)
{
    struct model_shape shape;
    struct trainer *trainer = &t->trainer;
    struct mesh *mesh = &t->machine.mesh;
    *t = (struct training){.machine = {.ops = &ops_cpu_reference}};
    TRY(config_load(&t->config, NULL, settings, num_settings));
    TRY(config_check(&t->config, world->size));
    TRY(mesh_resolve(mesh, &t->config.parallelism, world->rank, world->size));
    TRY(groups_open(&t->machine.groups, mesh, world));
    TRY(cpu_queue_open(&t->machine.queue, 1, 0));
    TRY(tokenizer_open(&t->tokenizer, "bytes", &t->config.tokenizer));
    TRY(model_shape_resolve(&shape, &t->config.model, tokenizer_vocab_size(t->tokenizer)));
    t->data = inputs_data_config(&t->config, &t->source);
    struct loader_options o =
        inputs_loader_options(&t->config, mesh, &t->data, t->tokenizer, shape.V);
    o.readers = &t->machine.groups.of[GROUP_data];
    if (t->machine.groups.of[GROUP_peers].rank == 0) TRY(loader_open(&t->loader, &o));
    TRY(trainer_open(trainer, &t->config, &shape, &t->machine));
    TRY(trainer_init_weights(trainer, 1));
    TRY(trainer_sync_weights(trainer));
    return STATUS_OK;
}

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
    struct comm self = *comm_self();
    CHECK_STATUS(OK, training_open_rank(t, &self, all, n));
}

double training_steps(struct training *t, int steps)
{
    struct step_result r = {0};
    for (int i = 0; i < steps; i++) CHECK_STATUS(OK, trainer_step(&t->trainer, t->loader, &r));
    return r.loss;
}

void training_close(struct training *t)
{
    trainer_close(&t->trainer);
    loader_close(t->loader);
    tokenizer_close(t->tokenizer);
    cpu_queue_close(t->machine.queue);
    groups_close(&t->machine.groups);
    config_release(&t->config);
}
