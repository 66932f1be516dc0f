// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/folder.h"
#include "config/data_stages.h"
#include "metrics/memory.h"
#include "tensor/device.h"
#include "train/inputs.h"
#include "train/nonfinite.h"
#include "train/rank_check.h"
#include "train/rollback.h"
#include "train/run_report.h"
#include "train/run_state.h"
#include "train/start.h"
#include "train/traced_step.h"
#include "train/validation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct comm *world(const struct training_run *r)
{
    return &r->trainer.machine.groups.of[GROUP_world];
}

/* Totals since the last logged step. */
struct interval {
    double begin_s, data_seconds;
    int64_t steps, tokens, skipped;
    int64_t padding; /* of this rank's rows */
};

static void count_step(const struct trainer *t, const struct step_result *s, struct interval *i)
{
    i->steps++;
    i->tokens += t->step_rows * t->batch.T;
    i->data_seconds += s->data_seconds;
    i->skipped += s->skipped;
    i->padding += t->batch.padding;
}

/* Adds to a failure of this rank at which step, and doing what, it occurred. */
static enum status add_step(int64_t step, const char *doing, enum status st)
{
    if (!st || st == STATUS_DIVERGED || st == STATUS_REQUEUE || comm_failed_elsewhere()) return st;
    return status_prefix(st, "step %lld, %s", (long long)step, doing);
}

/* REQUEUE: the run must stop.  Unless all of it succeeds, it is due again when the run resumes. */
static enum status validate(struct training_run *r)
{
    double loss = (double)NAN;
    const struct validation v = {.config = r->config,
                                 .trainer = &r->trainer,
                                 .tokenizer = r->tokenizer,
                                 .data = &r->data,
                                 .metrics = r->metrics,
                                 .skipped = &r->skipped,
                                 .stop = &r->stop,
                                 .tasks = &r->tasks,
                                 .loss = &loss};
    r->validation_due = true;
    TRY(add_step(r->trainer.steps_done, "validation", validation_run(&v)));
    r->validation_due = false;
    run_report_validation(r->report, r->trainer.steps_done, loss);
    return STATUS_OK;
}

/* What all ranks do after a step, besides stopping for r->stop.signal. */
struct requests {
    bool save, roll_back;
};

/* With interval_type = "seconds" rank 0's clock decides when to save; rank 0 also decides whether
 * to roll back. */
static enum status agree_on_requests(struct training_run *r, bool roll_back, struct requests *out)
{
    const struct checkpoint_config *c = &r->config->checkpoint;
    int64_t step = r->trainer.steps_done;
    bool by_clock = c->interval_type == SAVE_INTERVAL_seconds;
    bool is_late = clock_monotonic_s() - r->saved_at_s >= (double)c->interval;
    int64_t requests[STOP_REQUESTS] = {r->is_main && is_late, r->is_main && roll_back};
    activity_enter(ACTIVITY_agreeing);
    TRY(stop_agree(&r->stop, requests));
    out->save = by_clock ? requests[0] : step % c->interval == 0;
    out->roll_back = requests[1];
    if (c->enable_first_step_checkpoint && step == 1) out->save = true;
    if (step == r->end) out->save = true;
    if (!c->enable || c->load_only) out->save = false;
    return STATUS_OK;
}

static enum status open_outputs(struct training_run *r, const struct machine *machine)
{
    const struct config *c = r->config;
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
        .num_ranks = world(r)->size,
        .last_rows = batch_ramp_advance(&r->trainer.ramp, r->trainer.rows_done,
                                        c->training.steps - r->trainer.steps_done),
        .row_tokens = c->training.seq_len,
        .flops_per_token = model_flops_per_token(&r->trainer.shape, (int)c->training.seq_len),
        .causal_flops_per_token =
            model_causal_flops_per_token(&r->trainer.shape, (int)c->training.seq_len),
        .peak_flops = c->metrics.peak_flops > 0 ? c->metrics.peak_flops : machine->peak_flops,
        .memory_total_bytes = (double)memory,
    };
    TRY(skipped_records_open(&r->skipped, c, r->trainer.steps_done, r->is_main));
    if (r->is_main) TRY(metrics_open(&r->metrics, &o));
    return STATUS_OK;
}

/* Creates the run's folder and opens its log; on rank 0. */
static enum status open_folder(const struct training_run *r)
{
    const struct config *c = r->config;
    TRY(file_make_dirs(c->job.dump_folder));
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
    TRY(model_shape_resolve(shape, &c->model,
                            r->tokenizer ? tokenizer_vocab_size(r->tokenizer) : 0));
    if (shape->max_context < c->training.seq_len) shape->max_context = (int)c->training.seq_len;
    TRY(config_fit(c, shape, &machine->mesh));
    if (r->is_main) TRY(start_check(r->whole, shape, false));
    TRY(task_validation_open(&r->tasks, c, r->tokenizer, r->is_main));
    return STATUS_OK;
}

static enum status open_trainer(struct training_run *r, const struct machine *machine,
                                const struct model_shape *shape)
{
    const struct config *c = r->config;
    TRY(trainer_open(&r->trainer, c, shape, machine));
    r->trainer_is_open = true;
    if (r->is_main)
        step_graph_log(c, &machine->mesh, machine->queue, (double)r->trainer.whole.parameters);
    if (r->is_main && r->trainer.elastic.canonical)
        log_line(LOG_INFO,
                 "elastic sums over %lld microbatches: any number of data-parallel ranks that "
                 "divides it has the same bits",
                 (long long)r->trainer.elastic.canonical);
    r->data = inputs_data_config(c, &r->training_source);
    struct loader_options options =
        inputs_loader_options(c, &machine->mesh, &r->data, r->tokenizer, shape->V);
    options.readers = &r->trainer.machine.groups.of[GROUP_data];
    struct text padding = {0};
    inputs_describe_padding(c, &machine->mesh, &padding);
    if (r->is_main && padding.len) log_line(LOG_INFO, "%s", padding.data);
    text_release(&padding);
    TRY(comm_agree(world(r), r->reads ? loader_open(&r->loader, &options) : STATUS_OK));
    return STATUS_OK;
}

/* Estimates a save at 100 MB/s until the first one is measured. */
static void open_stop(struct training_run *r)
{
    const double bytes_per_second = 1e8;
    struct trainer *t = &r->trainer;
    double bytes = (double)checkpoint_staging_bytes(&t->shard, t->ema);
    stop_init(&r->stop, world(r), t->machine.groups.of[GROUP_pp].size == 1,
              bytes / bytes_per_second);
    t->model.units = stop_wrap_units(&r->stop, t->model.units);
}

static enum status open_run(struct training_run *r, const struct machine *machine)
{
    const struct config *c = r->config;
    const struct comm *world_group = &machine->groups.of[GROUP_world];
    struct model_shape shape;
    r->saved_step = r->unsavable_step = -1;
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
        .world = world(r),
    };
    TRY(checkpointer_open(&r->checkpointer, &o));
    config_write(r->whole, false, &r->config_toml);
    TRY(run_state_fill(r));
    TRY(comm_agree(world_group, r->is_main ? write_config(r) : STATUS_OK));
    if (r->loader) inputs_skip_rows(c, r->loader);
    TRY(comm_agree(world_group, open_outputs(r, machine)));
    TRY(repeats_open(&r->repeats, &r->data, r->loader, world_group));
    return STATUS_OK;
}

/* Returns the first failure: the given one, or that of a pending asynchronous save. */
static enum status close_run(struct training_run *r, enum status st)
{
    activity_enter(ACTIVITY_saving); /* waits for a pending save */
    bool is_over = st || r->trainer.steps_done >= r->config->training.steps;
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
    bool is_complete = !st && r->trainer_is_open && r->end == r->whole->training.steps;
    if (is_complete && r->report->has_begun) run_report_end(r->report, r, true);
    liveness_close(&r->liveness);
    stragglers_close(&r->stragglers);
    if (r->trainer_is_open) trainer_close(&r->trainer);
    task_validation_close(&r->tasks);
    tokenizer_close(r->tokenizer);
    free(r->checkpoint_folder);
    text_release(&r->config_toml);
    return st;
}

static enum status log_step(struct training_run *r, const struct step_result *s, struct interval *i)
{
    const struct trainer *t = &r->trainer;
    struct step_metrics m = {
        .step = t->steps_done,
        .rows = t->step_rows,
        .rows_done = t->rows_done,
        .loss = s->loss,
        .max_loss = s->max_loss,
        .grad_norm = s->grad_norm,
        .lr = s->lr,
        .tokens_seen = t->tokens_seen,
        .tokens = i->tokens,
        .steps = i->steps,
        .skipped = i->skipped,
        .seconds = clock_monotonic_s() - i->begin_s,
        .data_seconds = i->data_seconds,
        .padding = i->padding,
    };
    activity_enter(ACTIVITY_reporting);
    if (r->config->data.packing == PACKING_best_fit)
        TRY(comm_all_reduce_int64(&t->machine.groups.of[GROUP_data], REDUCE_SUM, &m.padding, 1));
    TRY(memory_most_used(t->machine.queue, world(r), &m.memory_bytes));
    if (metrics_needs_parameter_norm(&r->config->metrics))
        TRY(trainer_parameter_norm(t, &m.parameter_norm));
    if (r->is_main) metrics_step(r->metrics, &m);
    *i = (struct interval){.begin_s = clock_monotonic_s()};
    return STATUS_OK;
}

/* Goes back to a good checkpoint, if there is one.  Metrics begin again after its step. */
static enum status roll_back(struct training_run *r, const struct step_result *s, bool is_needed)
{
    struct checkpoint_state state = run_state_of(r);
    struct rollback b = {.folder = r->checkpoint_folder,
                         .checkpointer = r->checkpointer,
                         .state = &state,
                         .trainer = &r->trainer,
                         .loader = r->loader,
                         .guard = &r->guard,
                         .first_step = r->begin,
                         .result = s,
                         .is_needed = is_needed};
    r->trainer.is_updating = true; /* if the rollback fails, no whole state is left to save */
    TRY(rollback_run(&b));
    r->trainer.is_updating = false;
    if (b.to < 0) return STATUS_OK;
    r->saved_step = b.to, r->unsavable_step = -1;
    run_report_rollback(r->report, b.to);
    r->validation_due = false;
    metrics_close(r->metrics);
    r->metrics = NULL;
    skipped_records_close(&r->skipped);
    TRY(comm_agree(world(r), open_outputs(r, &r->trainer.machine)));
    if (r->is_main) rollback_report(&b, r->metrics);
    return STATUS_OK;
}

/* Reports the rows that a step skipped, and records it if these are all. */
static void note_skipped(struct training_run *r, const struct step_result *s)
{
    struct row_ranges rows = {0};
    if (!r->loader) return;
    if (s->skips_rows) loader_skip_step(r->loader);
    loader_list_skipped(r->loader, &rows);
    for (size_t i = 0; i < rows.count && r->is_main; i++) {
        int64_t first = (int64_t)rows.items[i].begin, last = (int64_t)rows.items[i].end - 1;
        log_line(LOG_INFO, "step %lld: skipping rows %lld to %lld (guard.skip_%s)",
                 (long long)s->step, (long long)first, (long long)last,
                 s->skips_rows ? "steps" : "rows");
        metrics_skipped_rows(r->metrics, s->step, first, last);
    }
    row_ranges_release(&rows);
}

static enum status save_or_roll_back(struct training_run *r, const struct step_result *s)
{
    enum status st = run_state_save_if_possible(r);
    if (st != STATUS_DIVERGED || r->config->guard.nonfinite != NONFINITE_rollback) return st;
    if (!comm_failed_elsewhere()) log_line(LOG_WARN, "%s", status_message());
    return roll_back(r, s, true);
}

/* `saves`: a checkpoint of this step will be written. */
static enum status check_collectives(const struct training_run *r, bool saves)
{
    int64_t every = r->config->guard.check_collectives, step = r->trainer.steps_done;
    bool is_due = saves || step == r->config->training.steps || (every && step % every == 0);
    if (every && is_due) TRY(rank_check_collectives(&r->trainer));
    return STATUS_OK;
}

/* Stops for r->stop.signal. */
static enum status stop_early(struct training_run *r)
{
    const char *stopped = stop_describe(&r->stop);
    long long step = (long long)r->trainer.steps_done;
    bool is_new = r->saved_step != r->trainer.steps_done;
    if (is_new && r->config->checkpoint.load_only)
        FAIL(REQUEUE, "%s after step %lld; nothing is saved, as checkpoint.load_only = true",
             stopped, step);
    if (is_new && r->is_main)
        log_line(LOG_INFO, "%s after step %lld, %.3f s ago; saving a checkpoint", stopped, step,
                 signals_pending_for());
    TRY(check_collectives(r, is_new));
    enum status st = run_state_save_now(r);
    if (st) return status_prefix(st, "%s after step %lld, and the save failed", stopped, step);
    if (!step) FAIL(REQUEUE, "%s before the first step; there is nothing to save", stopped);
    run_report_end(r->report, r, false);
    FAIL(REQUEUE, "%s after step %lld; the checkpoint is saved", stopped, step);
}

/* A run that fails in its first step has saved nothing, as it can start there again. */
static bool has_checkpoint(const struct training_run *r, int64_t step)
{
    char *path = folder_step_path(r->checkpoint_folder, step);
    bool has = file_exists(path);
    free(path);
    return has;
}

/* Saves the state after the last whole step before a failure ends the run, if all ranks know of the
 * failure and so can take part; not if the device failed, or if a save has found the state bad. */
static enum status save_before_failing(struct training_run *r, enum status why)
{
    const struct checkpoint_config *c = &r->config->checkpoint;
    const struct trainer *t = &r->trainer;
    struct failure first = {0};
    bool together = status_is_shared() || world(r)->size == 1;
    bool is_good = !t->is_updating && r->unsavable_step != t->steps_done;
    bool is_able = why != STATUS_COMM && why != STATUS_DEVICE && together;
    if (!is_good || !is_able || !c->enable || c->load_only) return why;
    status_save(&first, why);
    enum status st = run_state_save_now(r);
    if (st)
        run_state_log_unsaved(r, st);
    else if (r->is_main && has_checkpoint(r, t->steps_done))
        log_line(LOG_INFO, "the run fails after step %lld; that state is saved",
                 (long long)t->steps_done);
    return status_restore(&first);
}

/* One step, with a trace if profiling is due.  If it fails, or is abandoned to stop (REQUEUE), the
 * data cursor is again that of the state, after the step before. */
static enum status run_step(struct training_run *r, struct step_result *s)
{
    int64_t step = r->trainer.steps_done + 1;
    double begin = clock_monotonic_s();
    stop_begin(&r->stop);
    if (r->loader) loader_mark(r->loader);
    enum status st = traced_step_run(&r->trainer, r->loader, s);
    if (!st && s->skipped) {
        st = nonfinite_handle(&r->trainer, r->loader, s);
        if (st) trainer_undo_skipped(&r->trainer);
    }
    if (st && r->loader) loader_restore_mark(r->loader);
    stop_end_step(&r->stop, clock_monotonic_s() - begin);
    return add_step(step, "training", st);
}

static enum status run_steps(struct training_run *r)
{
    const struct config *c = r->config;
    struct trainer *t = &r->trainer;
    int64_t begin = t->steps_done, last = c->training.steps, end = r->end;
    if (r->saved_step < 0) r->saved_step = begin; /* it can start there again */
    TRY(stop_check(&r->stop));
    if (r->validation_due) {
        TRY(validate(r));
        r->saved_step = -1; /* that checkpoint says that it is due */
    }
    struct interval interval = {.begin_s = clock_monotonic_s()};
    while (t->steps_done < end) {
        struct step_result s;
        struct requests due;
        liveness_begin_step(&r->liveness, t->steps_done + 1);
        TRY(run_step(r, &s));
        TRY(stragglers_add(&r->stragglers, world(r), liveness_end_step(&r->liveness)));
        int64_t done = t->steps_done;
        skipped_records_list(&r->skipped, r->loader, done);
        note_skipped(r, &s);
        if (!s.skips_rows) count_step(t, &s, &interval);
        bool spikes = guard_watch(&r->guard, &c->guard, &s, r->is_main, done == last);
        if (done == 1 || done % c->metrics.log_freq == 0 || done == last) {
            if (!s.skips_rows) TRY(log_step(r, &s, &interval));
            TRY(skipped_records_check(&r->skipped, r->loader, world(r)));
            TRY(repeats_check(&r->repeats, r->loader, done, world(r)));
        }
        if (c->validation.enable && (done % c->validation.freq == 0 || done == last)) {
            double paused = clock_monotonic_s();
            TRY(validate(r));
            interval.begin_s += clock_monotonic_s() - paused;
        }
        TRY(agree_on_requests(r, spikes, &due));
        bool stops = r->stop.signal && done < last;
        if (!stops) TRY(check_collectives(r, due.save));
        if (due.roll_back) TRY(roll_back(r, &s, false));
        if (stops) return STATUS_REQUEUE;
        if (done < last && due.save && t->steps_done == done) TRY(save_or_roll_back(r, &s));
        if (t->steps_done < done) interval = (struct interval){.begin_s = clock_monotonic_s()};
    }
    if (c->checkpoint.enable && !c->checkpoint.load_only &&
        (t->steps_done > begin || r->saved_step < 0))
        TRY(run_state_save(r, end == last && c->checkpoint.last_save_model_only));
    if (r->is_main && end == last) metrics_summarize(r->metrics);
    return STATUS_OK;
}

static bool is_in_stage(const struct training_run *r)
{
    int64_t done = r->trainer.steps_done;
    return done >= r->begin && (done < r->end || r->end == r->config->training.steps);
}

/* One stage of the data, from the newest checkpoint to the stage's end.  *here: whether that
 * checkpoint was of this stage; otherwise nothing was done. */
static enum status run_stage(struct training_run *r, const struct machine *machine, bool *here)
{
    enum status st = open_run(r, machine);
    *here = !st && (is_in_stage(r) || r->config->checkpoint.create_seed_checkpoint);
    if (*here && r->config->checkpoint.create_seed_checkpoint) {
        st = run_state_save(r, false);
    } else if (*here) {
        run_report_begin(r->report, r);
        st = run_steps(r);
        if (st == STATUS_REQUEUE)
            st = stop_early(r);
        else if (st)
            st = save_before_failing(r, st);
    }
    return close_run(r, st);
}

/* Steps of the newest checkpoint, or of the one to go back to; 0: none. */
static enum status find_steps(const struct config *c, const struct comm *world, int64_t *steps)
{
    struct folder_steps l = {0};
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    enum status st = world->rank == 0 ? folder_steps_read(&l, folder) : STATUS_OK;
    *steps = l.count ? l.steps[l.count - 1] : 0;
    if (l.count && c->checkpoint.load_step >= 0 && c->checkpoint.load_step < *steps)
        *steps = c->checkpoint.load_step;
    folder_steps_release(&l);
    free(folder);
    TRY(comm_agree(world, st));
    return comm_all_reduce_int64(world, REDUCE_MAX, steps, 1);
}

static void log_stage(const struct data_stage *s, size_t index, const struct mesh *mesh)
{
    struct text t = {0};
    data_stages_describe(s, mesh, &t);
    log_line(LOG_INFO, "data stage %zu, steps %lld to %lld: %s", index, (long long)s->begin + 1,
             (long long)s->end, t.data);
    text_release(&t);
}

enum status run_train(const struct config *c, const struct machine *machine)
{
    const struct comm *world_group = &machine->groups.of[GROUP_world];
    bool is_seed = c->checkpoint.create_seed_checkpoint, continues = false, here = true;
    struct run_report report = {0};
    int64_t done = 0;
    size_t stages = data_stages_count(c);
    if (stages > 1) TRY(find_steps(c, world_group, &done));
    for (int misses = 0; misses < 2; misses += !here) {
        struct data_stage stage;
        size_t index = data_stages_find(c, &machine->mesh, done);
        data_stages_open(&stage, c, &machine->mesh, index);
        struct training_run r = {.whole = c,
                                 .config = &stage.config,
                                 .report = &report,
                                 .begin = stage.begin,
                                 .end = stage.end};
        if (stages > 1 && world_group->rank == 0) log_stage(&stage, index, &machine->mesh);
        if (continues) {
            stage.config.checkpoint.load_step = -1;
            stage.config.checkpoint.exclude_from_loading.count = 0;
        }
        enum status st = run_stage(&r, machine, &here);
        data_stages_close(&stage);
        TRY(st);
        done = r.trainer.steps_done;
        if (here && (is_seed || index + 1 == stages || done >= c->training.steps)) return STATUS_OK;
        continues |= here;
    }
    FAIL(DATA, "%s: other checkpoints appear while the run starts", c->job.dump_folder);
}
