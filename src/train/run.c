// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "metrics/memory.h"
#include "metrics/metrics.h"
#include "parallel/comm_trace.h"
#include "tensor/device.h"
#include "train/inputs.h"
#include "train/rank_check.h"
#include "train/skipped_records.h"
#include "train/start.h"
#include "train/task_validation.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything a run has open; NULL: not opened. */
struct training_run {
    const struct config *config;
    struct tokenizer *tokenizer;
    struct source_config training_source, validation_source;
    struct data_config data;
    struct loader *loader;
    struct skipped_records skipped;
    struct trainer trainer;
    bool trainer_is_open;
    struct task_validation tasks;
    struct checkpointer *checkpointer;
    char *checkpoint_folder;
    struct metrics *metrics;
    struct text config_toml;
    int64_t saved_step; /* step of the newest checkpoint; -1: none */
    double saved_at_s;
    bool is_main; /* rank 0: writes the log, metrics and configuration */
    bool reads;   /* the first of its peers: reads the data */
};

static const struct comm *world(const struct training_run *r)
{
    return &r->trainer.machine.groups.of[GROUP_world];
}

/* Totals since the last logged step. */
struct interval {
    double begin_s, data_seconds;
    int64_t steps, tokens, skipped;
};

/* The signal pending on any rank, 0: none. */
static enum status pending_signal(const struct training_run *r, int *signal)
{
    int64_t pending = signals_pending();
    TRY(comm_all_reduce_int64(world(r), REDUCE_MAX, &pending, 1));
    *signal = (int)pending;
    return STATUS_OK;
}

/* Bytes of device memory in use, or the process's peak memory; the largest of all ranks. */
static enum status memory_used(const struct training_run *r, int64_t *used)
{
    struct queue *queue = r->trainer.machine.queue;
    size_t total, in_use = (size_t)memory_peak_bytes();
    if (queue_device_allocator(queue)) TRY(queue_memory_info(queue, &total, &in_use));
    *used = (int64_t)in_use;
    TRY(comm_all_reduce_int64(world(r), REDUCE_MAX, used, 1));
    return STATUS_OK;
}

static enum status validate_loss(struct training_run *r)
{
    const struct config *c = r->config;
    struct trainer *t = &r->trainer;
    const char *path = c->validation.dataset_path;
    struct data_config data =
        path[0] ? inputs_data_of_path(c, path, c->validation.column, &r->validation_source)
                : r->data;
    if (path[0]) data.validation_share = 0, data.order = ORDER_streams;
    struct loader_options o =
        inputs_loader_options(c, &t->machine.mesh, &data, r->tokenizer, t->shape.V);
    o.seq_len = trainer_validation_tokens(c);
    o.prefetch_rows = 0;
    o.validation = !path[0];
    o.once = true;
    struct loader *loader = NULL;
    struct evaluation e;
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    int stop;
    TRY_OUT(comm_agree(world(r), r->reads ? loader_open(&loader, &o) : STATUS_OK));
    TRY_OUT(evaluator_run(&t->evaluator, loader, c->validation.steps, &t->step, &e));
    TRY_OUT(pending_signal(r, &stop));
    if (stop) goto out; /* evaluation ended early: its mean is not the validation loss */
    TRY_OUT(skipped_records_validated(&r->skipped, loader, t->steps_done, world(r)));
    if (!e.tokens) FAIL_OUT(DATA, "validation: the data has no token to predict");
    int64_t memory;
    TRY_OUT(memory_used(r, &memory));
    if (r->is_main)
        TRY_OUT(metrics_validation(r->metrics, t->steps_done, e.loss_sum / (double)e.tokens,
                                   clock_monotonic_s() - begin, e.tokens, memory));
out:
    loader_close(loader);
    return st;
}

static enum status validate(struct training_run *r)
{
    if (config_has_validation_data(r->config)) TRY(validate_loss(r));
    return task_validation_run(&r->tasks, &r->trainer, r->is_main ? r->metrics : NULL);
}

static struct checkpoint_state checkpoint_state_of(struct training_run *r)
{
    struct trainer *t = &r->trainer;
    return (struct checkpoint_state){
        .shape = &t->shape,
        .layout = &t->whole,
        .shard = &t->shard,
        .world = world(r),
        .weights = t->optim.split ? t->compute_weights : t->weights,
        .exp_avg = t->exp_avg,
        .exp_avg_sq = t->exp_avg_sq,
        .low = t->low,
        .moments = t->optim.moments,
        .queue = t->machine.queue,
        .dtype = SAFETENSORS_F32,
        .step = t->steps_done,
        .tokenizer = r->tokenizer,
        .config_toml = &r->config_toml,
        .objective = &r->config->objective,
    };
}

/* Writes the data cursor of all readers; null on ranks that do not read. */
static enum status save_cursor(struct training_run *r, struct json_writer *w)
{
    const struct comm *readers = &r->trainer.machine.groups.of[GROUP_data];
    if (!r->reads) {
        json_write_null(w, NULL);
        return STATUS_OK;
    }
    TRY(loader_gather_cursor(r->loader, readers));
    loader_save(r->loader, w);
    return STATUS_OK;
}

static enum status save_checkpoint(struct training_run *r, bool model_only)
{
    struct trainer *t = &r->trainer;
    if (r->saved_step == t->steps_done) return STATUS_OK;
    struct checkpoint_state state = checkpoint_state_of(r);
    if (model_only) {
        bool half = r->config->checkpoint.export_dtype == EXPORT_bfloat16;
        state.exp_avg = state.exp_avg_sq = NULL;
        state.dtype = half ? SAFETENSORS_BF16 : SAFETENSORS_F32;
    }
    enum status st = STATUS_OK;
    struct json_writer w = {.text = &state.train};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "tokens_seen", t->tokens_seen);
    json_write_int(&w, "skips", t->skips);
    if (t->has_float8) {
        json_write_key(&w, "float8");
        float8_save(&t->float8, &w);
    }
    json_write_key(&w, "data");
    TRY_OUT(save_cursor(r, &w));
    json_end_object(&w);
    json_finish(&w);
    TRY_OUT(checkpointer_save(r->checkpointer, &state));
    r->saved_step = t->steps_done;
    r->saved_at_s = clock_monotonic_s();
out:
    text_release(&state.train);
    return st;
}

/* A failed save does not end the run: the next one may succeed.  Only the last one, and the one
 * before a stop, must. */
static void save_if_possible(struct training_run *r)
{
    if (save_checkpoint(r, false))
        log_line(LOG_WARN, "cannot save the checkpoint of step %lld: %s",
                 (long long)r->trainer.steps_done, status_message());
}

/* What all ranks do after a step: stop for the signal pending on any of them (0: none), save.  With
 * interval_type = "seconds" rank 0's clock decides. */
static enum status agree_on_requests(const struct training_run *r, int *signal, bool *save_due)
{
    const struct checkpoint_config *c = &r->config->checkpoint;
    int64_t step = r->trainer.steps_done;
    bool by_clock = c->interval_type == SAVE_INTERVAL_seconds;
    bool late = r->is_main && clock_monotonic_s() - r->saved_at_s >= (double)c->interval;
    int64_t requests[] = {signals_pending(), late};
    TRY(comm_all_reduce_int64(world(r), REDUCE_MAX, requests, 2));
    *signal = (int)requests[0];
    *save_due = by_clock ? requests[1] : step % c->interval == 0;
    if (c->enable_first_step_checkpoint && step == 1) *save_due = true;
    if (!c->enable || c->load_only) *save_due = false;
    return STATUS_OK;
}

static bool is_excluded(const struct checkpoint_config *c, const char *part)
{
    for (size_t i = 0; i < c->exclude_from_loading.count; i++)
        if (!strcmp(c->exclude_from_loading.items[i], part)) return true;
    return false;
}

/* Torch checkpoints have no usable data position, so the data restart from the first row. */
static enum status resume_data(struct training_run *r, const struct json *cursor)
{
    if (is_excluded(&r->config->checkpoint, "dataloader") || !r->reads || json_is_null(cursor))
        return STATUS_OK;
    TRY(loader_load(r->loader, cursor));
    return STATUS_OK;
}

/* Restores steps, counters, FP8 scales and data cursor from a checkpoint of this run. */
static enum status resume_state(struct training_run *r, const char *folder,
                                const struct checkpoint_found *found)
{
    struct trainer *t = &r->trainer;
    int64_t max = INT64_C(1) << 53;
    if (found->step == 0 && !found->train) return STATUS_OK; /* initial weights */
    if (!found->train || !found->has_moments)
        FAIL(CONFIG,
             "%s has only the model, so the run cannot resume from it; start a new run with "
             "checkpoint.initial_load_path",
             folder);
    if (!is_excluded(&r->config->checkpoint, "lr_scheduler")) t->steps_done = found->step;
    TRY(json_get_int(found->train, "tokens_seen", 0, max, &t->tokens_seen));
    TRY(json_get_int(found->train, "skips", 0, max, &t->skips));
    if (t->has_float8) TRY(float8_load(&t->float8, json_get(found->train, "float8")));
    TRY(resume_data(r, json_get(found->train, "data")));
    return STATUS_OK;
}

static enum status load_checkpoint(struct training_run *r, const struct start *from)
{
    struct checkpoint_state state = checkpoint_state_of(r);
    struct checkpoint_found found = {0};
    const struct load_rules rules = start_load_rules(from, r->config);
    enum status st = STATUS_OK;
    if (!from->whole) state.exp_avg = state.exp_avg_sq = NULL;
    TRY_OUT(rank_check_start(from, world(r)));
    TRY_OUT(checkpoint_load(from->folder, &state, &rules, &found));
    if (from->whole) TRY_OUT(comm_agree(world(r), resume_state(r, from->folder, &found)));
    log_line(LOG_INFO, "%s %s",
             from->whole && found.train ? "resuming from" : "starting from the weights of",
             from->folder);
out:
    json_free(found.state);
    return st;
}

/* From the newest checkpoint of this run, else initial_load_path, else random weights.  If the data
 * of a checkpoint are damaged, falls back to the one before. */
static enum status fill_state(struct training_run *r)
{
    struct start_search search = {.limit = INT64_MAX, .fetch = true};
    struct trainer *t = &r->trainer;
    struct start start;
    enum status st;
    TRY(trainer_init_weights(t, (uint64_t)r->config->debug.seed));
    do {
        TRY(start_find(&start, r->config, &search, world(r)));
        st = start.folder ? load_checkpoint(r, &start) : STATUS_OK;
        bool is_unreadable = st == STATUS_DATA || st == STATUS_IO;
        bool falls_back = is_unreadable && start.native && !start.rewinds;
        if (!st && start.own) r->saved_step = t->steps_done;
        if (!st) st = start_finish(&start, r->config, world(r));
        search.limit = start.step;
        start_release(&start);
        if (st && !falls_back) return st;
        if (st) log_line(LOG_WARN, "falling back to an older checkpoint: %s", status_message());
    } while (st);
    TRY(trainer_sync_weights(t));
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
        .first_step = r->trainer.steps_done,
        .last_step = c->training.steps,
        .num_ranks = world(r)->size,
        .rows_per_step = trainer_step_rows(c, &machine->mesh),
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
    if (r->is_main) TRY(start_check(c, shape, false));
    TRY(task_validation_open(&r->tasks, c, r->tokenizer, r->is_main));
    return STATUS_OK;
}

static enum status open_trainer(struct training_run *r, const struct machine *machine,
                                const struct model_shape *shape)
{
    const struct config *c = r->config;
    TRY(trainer_open(&r->trainer, c, shape, machine));
    r->trainer_is_open = true;
    r->data = inputs_data_config(c, &r->training_source);
    struct loader_options options =
        inputs_loader_options(c, &machine->mesh, &r->data, r->tokenizer, shape->V);
    if (r->reads) TRY(loader_open(&r->loader, &options));
    return STATUS_OK;
}

static enum status open_run(struct training_run *r, const struct config *c,
                            const struct machine *machine)
{
    const struct comm *world_group = &machine->groups.of[GROUP_world];
    struct model_shape shape;
    r->config = c;
    r->saved_step = -1;
    r->saved_at_s = clock_monotonic_s();
    r->is_main = world_group->rank == 0;
    r->reads = machine->groups.of[GROUP_peers].rank == 0;
    rank_check_enable(c, &machine->groups);
    TRY(comm_agree(world_group, r->is_main ? open_folder(r) : STATUS_OK));
    TRY(inputs_fetch(c, world_group));
    TRY(comm_agree(world_group, inputs_open_tokenizer(c, r->is_main, &r->tokenizer)));
    TRY(rank_check_inputs(c, r->tokenizer, world_group));
    TRY(comm_agree(world_group, resolve_model(r, machine, &shape)));
    TRY(comm_agree(world_group, open_trainer(r, machine, &shape)));
    TRY(rank_check_data(c, r->loader, world_group));
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
    config_write(c, false, &r->config_toml);
    TRY(comm_agree(world_group, r->is_main ? write_config(r) : STATUS_OK));
    TRY(fill_state(r));
    TRY(comm_agree(world_group, open_outputs(r, machine)));
    return STATUS_OK;
}

/* Returns the first failure: the given one, or that of a pending asynchronous save. */
static enum status close_run(struct training_run *r, enum status st)
{
    metrics_close(r->metrics);
    skipped_records_close(&r->skipped);
    loader_close(r->loader);
    if (r->checkpointer) {
        struct failure first = {0};
        status_save(&first, st);
        st = checkpointer_close(r->checkpointer, st != STATUS_OK);
        if (first.status) st = status_restore(&first);
    }
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
    };
    TRY(memory_used(r, &m.memory_bytes));
    if (metrics_needs_parameter_norm(&r->config->metrics))
        TRY(trainer_parameter_norm(t, &m.parameter_norm));
    if (r->is_main) TRY(metrics_step(r->metrics, &m));
    *i = (struct interval){.begin_s = clock_monotonic_s()};
    return STATUS_OK;
}

static enum status stop_for_signal(struct training_run *r, int signal)
{
    TRY(save_checkpoint(r, false));
    TRY(checkpointer_wait(r->checkpointer));
    FAIL(REQUEUE, "stopped by SIG%s after step %lld; the checkpoint is saved", signals_name(signal),
         (long long)r->trainer.steps_done);
}

/* Adds to a failure of this rank at which step, and doing what, it occurred. */
static enum status add_step(int64_t step, const char *doing, enum status st)
{
    if (!st || st == STATUS_DIVERGED || comm_failed_elsewhere()) return st;
    return status_prefix(st, "step %lld, %s", (long long)step, doing);
}

/* One step, with a trace if profiling is due. */
static enum status run_step(struct training_run *r, struct step_result *s)
{
    const struct config *c = r->config;
    struct trainer *t = &r->trainer;
    struct trace trace = {0};
    struct text folder = {0};
    enum status st = STATUS_OK;
    bool traced =
        c->profiling.enable_profiling && (t->steps_done + 1) % c->profiling.profile_freq == 0;
    if (!traced) return trainer_step(t, r->loader, s);
    struct comm_trace transfers;
    t->machine.queue->trace = &trace;
    comm_trace_begin(&transfers, &t->machine.groups, &trace);
    st = trainer_step(t, r->loader, s);
    comm_trace_end(&transfers);
    t->machine.queue->trace = NULL;
    if (st) goto out;
    text_addf(&folder, "%s/%s/iteration_%lld", c->job.dump_folder, c->profiling.save_traces_folder,
              (long long)t->steps_done);
    TRY_OUT(file_make_dirs(folder.data));
    text_addf(&folder, "/rank%d_trace.json", world(r)->rank);
    TRY_OUT(trace_write(&trace, folder.data));
out:
    trace_release(&trace);
    text_release(&folder);
    return st;
}

/* `saves`: a checkpoint of this step will be written. */
static enum status check_collectives(const struct training_run *r, bool saves)
{
    int64_t every = r->config->guard.check_collectives, step = r->trainer.steps_done;
    bool is_due = saves || step == r->config->training.steps || (every && step % every == 0);
    if (every && is_due) TRY(rank_check_collectives(&r->trainer));
    return STATUS_OK;
}

static enum status run_steps(struct training_run *r)
{
    const struct config *c = r->config;
    struct trainer *t = &r->trainer;
    struct interval interval = {.begin_s = clock_monotonic_s()};
    int64_t first = t->steps_done + 1, last = c->training.steps;
    while (t->steps_done < last) {
        struct step_result s;
        int stop;
        bool due;
        int64_t done = t->steps_done + 1;
        TRY(add_step(done, "training", run_step(r, &s)));
        skipped_records_list(&r->skipped, r->loader, done);
        interval.steps++;
        interval.tokens += (int64_t)t->batch.B * t->batch.T * trainer_readers(&t->machine.mesh);
        interval.data_seconds += s.data_seconds;
        interval.skipped += s.skipped;
        if (done == 1 || done % c->metrics.log_freq == 0 || done == last) {
            TRY(log_step(r, &s, &interval));
            TRY(skipped_records_check(&r->skipped, r->loader, world(r)));
        }
        if (c->validation.enable && (done % c->validation.freq == 0 || done == last)) {
            double begin = clock_monotonic_s();
            TRY(add_step(done, "validation", validate(r)));
            interval.begin_s += clock_monotonic_s() - begin;
        }
        TRY(agree_on_requests(r, &stop, &due));
        TRY(check_collectives(r, due || stop));
        if (stop) return stop_for_signal(r, stop);
        if (done < last && due) save_if_possible(r);
    }
    if (c->checkpoint.enable && !c->checkpoint.load_only && t->steps_done >= first)
        TRY(save_checkpoint(r, c->checkpoint.last_save_model_only));
    if (r->is_main) metrics_summarize(r->metrics);
    return STATUS_OK;
}

enum status run_train(const struct config *c, const struct machine *machine)
{
    struct training_run r = {0};
    signals_catch();
    enum status st = open_run(&r, c, machine);
    if (!st && c->checkpoint.create_seed_checkpoint)
        st = save_checkpoint(&r, false);
    else if (!st)
        st = run_steps(&r);
    return close_run(&r, st);
}
