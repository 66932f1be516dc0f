// SPDX-License-Identifier: Apache-2.0
#include "train/run_steps.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/folder.h"
#include "metrics/memory.h"
#include "train/nonfinite.h"
#include "train/rank_check.h"
#include "train/rollback.h"
#include "train/run_checkpoint.h"
#include "train/run_report.h"
#include "train/run_setup.h"
#include "train/start.h"
#include "train/traced_step.h"
#include "train/validation.h"

#include <math.h>
#include <stdlib.h>

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
    if (!st || st == STATUS_DIVERGED || st == STATUS_REQUEUE || status_is_remote()) return st;
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
        TRY(comm_all_reduce_int64(trainer_group(t, GROUP_data), REDUCE_SUM, &m.padding, 1));
    TRY(memory_most_used(t->machine.queue, training_run_world(r), &m.memory_bytes));
    if (metrics_needs_parameter_norm(&r->config->metrics))
        TRY(trainer_parameter_norm(t, &m.parameter_norm));
    if (r->is_main) metrics_step(r->metrics, &m);
    *i = (struct interval){.begin_s = clock_monotonic_s()};
    return STATUS_OK;
}

/* Metrics begin again after the step that the run went back to. */
static enum status reopen_outputs(struct training_run *r, int64_t step)
{
    metrics_close(r->metrics);
    r->metrics = NULL;
    if (r->is_main) TRY(skipped_records_roll_back(&r->skipped, step));
    TRY(run_setup_open_outputs(r));
    return STATUS_OK;
}

/* Goes back to a good checkpoint, if there is one. */
static enum status roll_back(struct training_run *r, const struct step_result *s, bool is_needed)
{
    struct checkpoint_state state = run_checkpoint_state(r);
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
    TRY(comm_agree(training_run_world(r), reopen_outputs(r, b.to)));
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
    enum status st = run_checkpoint_save_if_possible(r);
    if (st != STATUS_DIVERGED || r->config->guard.nonfinite != NONFINITE_rollback) return st;
    if (!status_is_remote()) log_line(LOG_WARN, "%s", status_message());
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

/* Saves what was loaded as step 0, then sets the checkpoints of the other count of steps aside: the
 * run must not resume from them.  Until the last of them is moved, the same command starts from it
 * again. */
static enum status start_lineage(struct training_run *r)
{
    const struct checkpoint_config *c = &r->config->checkpoint;
    if (!r->counts_again || !c->enable || c->load_only) return STATUS_OK;
    r->saved_step = -1;
    TRY(add_step(0, "saving a checkpoint", run_checkpoint_save_now(r)));
    char *metrics = file_join(r->config->job.dump_folder, "metrics.jsonl");
    enum status st = checkpointer_abandon(r->checkpointer, 0, metrics, NULL);
    free(metrics);
    return st;
}

static enum status train_stage(struct training_run *r)
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
        TRY(stragglers_add(&r->stragglers, training_run_world(r), liveness_end_step(&r->liveness)));
        int64_t done = t->steps_done;
        skipped_records_list(&r->skipped, r->loader, done);
        note_skipped(r, &s);
        if (!s.skips_rows) count_step(t, &s, &interval);
        bool spikes = guard_watch(&r->guard, &c->guard, &s, r->is_main, done == end);
        if (done == 1 || done % c->metrics.log_freq == 0 || done == last) {
            if (!s.skips_rows) TRY(log_step(r, &s, &interval));
            TRY(skipped_records_check(&r->skipped, r->loader, training_run_world(r)));
            TRY(repeats_check(&r->repeats, r->loader, done, training_run_world(r)));
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
        TRY(run_checkpoint_save(r, end == last && c->checkpoint.last_save_model_only));
    if (r->is_main && end == last) metrics_summarize(r->metrics);
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
    TRY_PREFIX(run_checkpoint_save_now(r), "%s after step %lld, and the save failed", stopped,
               step);
    if (!step) FAIL(REQUEUE, "%s before the first step; there is nothing to save", stopped);
    run_report_end(r->report, r, false);
    FAIL(REQUEUE, "%s after step %lld; the checkpoint is saved", stopped, step);
}

/* The step of the newest checkpoint; -1: none.  A run that fails in its first step has saved
 * nothing, as it can start there again. */
static int64_t newest_checkpoint(const struct training_run *r)
{
    struct folder_steps l = {0};
    int64_t step = -1;
    if (!folder_steps_read(&l, r->checkpoint_folder) && l.count) step = l.steps[l.count - 1];
    folder_steps_release(&l);
    return step;
}

/* Saves the state after the last whole step before a failure ends the run, if all ranks know of the
 * failure and so can take part; not if the device failed, or if a save has found the state bad. */
static enum status save_before_failing(struct training_run *r, enum status why)
{
    const struct checkpoint_config *c = &r->config->checkpoint;
    const struct trainer *t = &r->trainer;
    struct failure first = {0};
    bool together = status_is_shared() || training_run_world(r)->size == 1;
    bool is_good = !t->is_updating && r->unsavable_step != t->steps_done;
    bool is_able = why != STATUS_COMM && why != STATUS_DEVICE && together;
    if (!is_good || !is_able || !c->enable || c->load_only) return why;
    status_save(&first, why);
    enum status st = run_checkpoint_save_now(r);
    if (st) run_checkpoint_log_unsaved(r, st);
    int64_t newest = r->is_main ? newest_checkpoint(r) : -1;
    if (newest >= 0)
        log_line(LOG_INFO,
                 newest == t->steps_done ? "the run fails after step %lld; that state is saved"
                                         : "the run fails; its newest checkpoint is that of step "
                                           "%lld",
                 (long long)newest);
    return status_restore(&first);
}

enum status run_steps_train(struct training_run *r)
{
    TRY(start_lineage(r));
    TRY(comm_agree(training_run_world(r), run_setup_open_outputs(r)));
    enum status st = train_stage(r);
    if (st == STATUS_REQUEUE) return stop_early(r);
    return st ? save_before_failing(r, st) : STATUS_OK;
}
