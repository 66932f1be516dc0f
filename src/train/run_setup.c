// SPDX-License-Identifier: Apache-2.0
#include "train/run_setup.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "metrics/memory.h"
#include "optim/ema.h"
#include "tensor/device.h"
#include "train/inputs.h"
#include "train/rank_check.h"
#include "train/rollback.h"
#include "train/run_checkpoint.h"
#include "train/run_report.h"
#include "train/start.h"

#include <stdlib.h>

enum status run_setup_open_outputs(struct training_run *r)
{
    const struct config *c = r->config;
    const struct machine *machine = &r->trainer.machine;
    size_t memory = (size_t)memory_total_bytes(), used;
    if (queue_device_allocator(machine->queue))
        TRY(queue_memory_info(machine->queue, &memory, &used));
    struct metrics_options o = {
        .config = &c->metrics,
        .dump_folder = c->job.dump_folder,
        .config_toml = r->config_toml.data,
        .first_step = r->trainer.steps_done,
        .is_load_only = c->checkpoint.load_only && r->whole->checkpoint.load_step >= 0,
        .is_unsaved = !c->checkpoint.enable,
        .validation_due = r->validation_due,
        .last_step = c->training.steps,
        .num_ranks = training_run_world(r)->size,
        .last_rows = batch_ramp_advance(&r->trainer.ramp, r->trainer.rows_done,
                                        c->training.steps - r->trainer.steps_done),
        .row_tokens = c->training.seq_len,
        .flops_per_token = model_flops_per_token(&r->trainer.shape, (int)c->training.seq_len),
        .causal_flops_per_token =
            model_causal_flops_per_token(&r->trainer.shape, (int)c->training.seq_len),
        .peak_flops = c->metrics.peak_flops > 0 ? c->metrics.peak_flops : machine->peak_flops,
        .memory_total_bytes = (double)memory,
    };
    if (!r->skipped.config)
        TRY(skipped_records_open(&r->skipped, c, r->trainer.steps_done, r->is_main));
    if (r->is_main) TRY(metrics_open(&r->metrics, &o));
    return STATUS_OK;
}

/* Creates and locks the run's folder and opens its log; on rank 0. */
static enum status open_folder(struct training_run *r)
{
    const struct config *c = r->config;
    TRY(folder_lock_run(c->job.dump_folder, &r->lock));
    char *path = file_join(c->job.dump_folder, "log.txt");
    enum status st = log_open(path);
    free(path);
    return st;
}

static enum status write_config(const struct training_run *r)
{
    char *path = file_join(r->config->job.dump_folder, "config.toml");
    enum status st = file_write(path, r->config_toml.data, r->config_toml.len);
    free(path);
    return st;
}

/* Opens what needs no other rank, so that one rank may fail: model, starting weights, tasks. */
static enum status resolve_model(struct training_run *r, const struct machine *machine,
                                 struct model_shape *shape)
{
    const struct config *c = r->config;
    TRY(model_shape_resolve(shape, &c->model, tokenizer_vocab_size(r->tokenizer)));
    if (shape->max_context < c->training.seq_len) shape->max_context = (int)c->training.seq_len;
    TRY(config_fit(c, shape, &machine->mesh));
    if (r->is_main) TRY(start_check(r->whole, shape, false));
    TRY(task_validation_open(&r->tasks, c, r->tokenizer, r->is_main));
    return STATUS_OK;
}

static void log_elastic(const struct training_run *r)
{
    long long canonical = r->trainer.elastic.canonical;
    if (canonical)
        log_line(LOG_INFO,
                 "elastic sums over %lld microbatches: any number of data-parallel ranks that "
                 "divides it has the same bits",
                 canonical);
}

static enum status open_trainer(struct training_run *r, const struct machine *machine,
                                const struct model_shape *shape)
{
    const struct config *c = r->config;
    TRY(trainer_open(&r->trainer, c, shape, machine));
    r->trainer_is_open = true;
    if (r->is_main)
        step_graph_log(c, &machine->mesh, machine->queue, (double)r->trainer.whole.parameters);
    if (r->is_main) log_elastic(r);
    r->data = inputs_data_config(c, &r->training_source);
    struct loader_options options =
        inputs_loader_options(c, &machine->mesh, &r->data, r->tokenizer, shape->V);
    options.readers = trainer_group(&r->trainer, GROUP_data);
    struct text padding = {0};
    inputs_describe_padding(c, &machine->mesh, &padding);
    if (r->is_main && padding.len) log_line(LOG_INFO, "%s", padding.data);
    text_release(&padding);
    TRY(comm_agree(training_run_world(r),
                   r->reads ? loader_open(&r->loader, &options) : STATUS_OK));
    return STATUS_OK;
}

/* Estimates a save at 100 MB/s until the first one is measured. */
static void open_stop(struct training_run *r)
{
    const double bytes_per_second = 1e8;
    struct trainer *t = &r->trainer;
    double buffers = ema_num_buffers(&r->config->optimizer);
    double muon = (double)(t->shard.elements - t->optim.exp_avg_sq_shard->elements);
    double bytes = (buffers * (double)t->shard.elements - muon) * sizeof(float);
    stop_init(&r->stop, training_run_world(r), trainer_group(t, GROUP_pp)->size == 1,
              bytes / bytes_per_second);
    if (queue_device_allocator(t->machine.queue)) r->stop.poll_s = STOP_POLL_GPU_S;
    t->model.units = stop_wrap_units(&r->stop, t->model.units);
}

enum status run_setup_open(struct training_run *r, const struct machine *machine)
{
    const struct config *c = r->config;
    const struct comm *world_group = &machine->groups.of[GROUP_world];
    struct model_shape shape;
    r->saved_step = r->unsavable_step = r->lock = -1;
    r->saved_at_s = clock_monotonic_s();
    r->is_main = world_group->rank == 0;
    r->reads = machine->groups.of[GROUP_peers].rank == 0;
    TRY(comm_agree(world_group, liveness_open(&r->liveness, &c->comm, world_group)));
    TRY(stragglers_open(&r->stragglers, world_group, machine->mesh.at[AXIS_pp]));
    rank_check_enable(c, &machine->groups);
    TRY(comm_agree(world_group, r->is_main ? open_folder(r) : STATUS_OK));
    TRY(inputs_fetch(c, world_group));
    TRY(comm_agree(world_group, inputs_open_tokenizer(c, r->is_main, &r->tokenizer)));
    TRY(rank_check_inputs(c, r->tokenizer, world_group));
    TRY(comm_agree(world_group, resolve_model(r, machine, &shape)));
    TRY(open_trainer(r, machine, &shape));
    TRY(rank_check_data(c, r->loader, world_group));
    open_stop(r);
    r->checkpoint_folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    struct checkpointer_options o = {
        .folder = r->checkpoint_folder,
        .copy_to = c->checkpoint.copy_to,
        .copy_stop_timeout_s = (int)c->checkpoint.copy_stop_timeout,
        .load_step = c->checkpoint.load_step,
        .load_only = c->checkpoint.load_only,
        .keep_latest_k = (int)c->checkpoint.keep_latest_k,
        .async = r->trainer.staging != NULL,
        .staging = r->trainer.staging,
        .world = training_run_world(r),
    };
    TRY(checkpointer_open(&r->checkpointer, &o));
    config_write(r->whole, false, &r->config_toml);
    TRY(run_checkpoint_fill(r));
    TRY(comm_agree(world_group, r->is_main ? write_config(r) : STATUS_OK));
    if (r->loader) inputs_skip_rows(c, r->loader);
    TRY(repeats_open(&r->repeats, &r->data, r->loader, world_group));
    return STATUS_OK;
}

enum status run_setup_close(struct training_run *r, enum status st)
{
    activity_enter(ACTIVITY_saving); /* waits for a pending save */
    bool is_over = st || (r->trainer.steps_done >= r->config->training.steps && !r->validation_due);
    if (r->metrics && is_over) metrics_end(r->metrics, st);
    metrics_close(r->metrics);
    skipped_records_close(&r->skipped);
    repeats_close(&r->repeats);
    loader_close(r->loader);
    if (r->checkpointer) {
        const struct checkpoint_config *k = &r->config->checkpoint;
        struct failure first = {0};
        status_save(&first, st);
        if (st) checkpointer_drain(r->checkpointer);
        if (k->enable && !k->load_only) integrity_abandon(&r->trainer.integrity, r->checkpointer);
        st = checkpointer_close(r->checkpointer, st != STATUS_OK);
        if (first.status) st = status_restore(&first);
        st = rollback_advise(r->checkpoint_folder, st);
    }
    /* Rank 0 may have waited for copies, and NCCL closes the trainer's groups only together. */
    if (!st && r->trainer_is_open) st = comm_agree(training_run_world(r), STATUS_OK);
    bool is_complete = !st && r->trainer_is_open && r->end == r->whole->training.steps;
    if (is_complete && r->report->has_begun) run_report_end(r->report, r, true);
    liveness_close(&r->liveness);
    stragglers_close(&r->stragglers);
    if (r->trainer_is_open) trainer_close(&r->trainer);
    task_validation_close(&r->tasks);
    tokenizer_close(r->tokenizer);
    folder_unlock(r->lock);
    free(r->checkpoint_folder);
    text_release(&r->config_toml);
    return st;
}
