// SPDX-License-Identifier: Apache-2.0
#include "train/run_checkpoint.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/data_stages.h"
#include "train/rank_check.h"
#include "train/rollback.h"
#include "train/start.h"
#include "train/trainer_state.h"

struct checkpoint_state run_checkpoint_state(struct training_run *r)
{
    struct trainer *t = &r->trainer;
    bool spikes = r->guard.spike_steps && rollback_is_enabled(&r->config->guard);
    return (struct checkpoint_state){
        .shape = &t->shape,
        .layout = &t->whole,
        .shard = &t->shard,
        .world = training_run_world(r),
        .weights = t->optim.split ? t->optim.copy : t->optim.weights,
        .exp_avg = t->optim.exp_avg,
        .exp_avg_sq = t->optim.exp_avg_sq,
        .exp_avg_sq_shard = t->optim.exp_avg_sq_shard,
        .first_moment_only = optim_first_moment_only(&r->config->optimizer),
        .ema = t->optim.ema,
        .low = t->optim.low,
        .moments = t->optim.moments,
        .moment_blocks = t->optim.moment_blocks,
        .queue = t->machine.queue,
        .dtype = SAFETENSORS_F32,
        .step = t->steps_done,
        .tokenizer = r->tokenizer,
        .config_toml = &r->config_toml,
        .objective = &r->config->objective,
        .keep_before = spikes ? rollback_limit(&r->guard, t->steps_done) : 0,
    };
}

/* Writes the data cursor of all readers; null on ranks that do not read. */
static enum status save_cursor(struct training_run *r, struct json_writer *w)
{
    const struct comm *readers = trainer_group(&r->trainer, GROUP_data);
    if (!r->reads) {
        json_write_null(w, NULL);
        return STATUS_OK;
    }
    TRY(loader_gather_cursor(r->loader, readers));
    loader_save(r->loader, w);
    return STATUS_OK;
}

enum status run_checkpoint_save(struct training_run *r, bool model_only)
{
    struct trainer *t = &r->trainer;
    if (r->saved_step == t->steps_done) return STATUS_OK;
    if (t->integrity.is_suspect)
        FAIL(DEVICE, "the state of step %lld may be corrupted and is not saved",
             (long long)t->steps_done);
    struct checkpoint_state state = run_checkpoint_state(r);
    activity_enter(ACTIVITY_saving);
    if (model_only) {
        bool half = r->config->checkpoint.export_dtype == EXPORT_bfloat16;
        state.exp_avg = state.exp_avg_sq = NULL;
        state.dtype = half ? SAFETENSORS_BF16 : SAFETENSORS_F32;
    }
    enum status st = STATUS_OK;
    struct json_writer w = {.text = &state.train};
    json_begin_object(&w, NULL, JSON_INLINE);
    trainer_state_save(t, &w);
    if (r->validation_due) json_write_bool(&w, "validation_due", true);
    if (rollback_is_enabled(&r->config->guard)) guard_save(&r->guard, &w);
    json_write_key(&w, "data");
    TRY_OUT(save_cursor(r, &w));
    json_end_object(&w);
    json_finish(&w);
    st = checkpointer_save(r->checkpointer, &state);
    r->saved_at_s = clock_monotonic_s(); /* after a failed save, too, the next waits its interval */
    TRY_OUT(st);
    r->saved_step = t->steps_done;
    stop_note_save(&r->stop, checkpointer_save_seconds(r->checkpointer));
out:
    if (st == STATUS_DIVERGED) r->unsavable_step = t->steps_done;
    text_release(&state.train);
    return st;
}

void run_checkpoint_log_unsaved(const struct training_run *r, enum status st)
{
    if (comm_logs_failure(training_run_world(r), st))
        log_line(LOG_WARN, "cannot save the checkpoint of step %lld: %s",
                 (long long)r->trainer.steps_done, status_message());
}

enum status run_checkpoint_save_if_possible(struct training_run *r)
{
    enum status st = run_checkpoint_save(r, false);
    bool skips = r->config->guard.nonfinite == NONFINITE_skip;
    bool is_fatal = st == STATUS_DEVICE || st == STATUS_COMM || (st == STATUS_DIVERGED && !skips);
    if (is_fatal && !status_is_remote()) /* this rank reports it when the run ends */
        return status_prefix(st, "cannot save the checkpoint of step %lld",
                             (long long)r->trainer.steps_done);
    if (st && st != STATUS_COMM) run_checkpoint_log_unsaved(r, st);
    return is_fatal ? st : STATUS_OK;
}

enum status run_checkpoint_save_now(struct training_run *r)
{
    enum status lost = checkpointer_drain(r->checkpointer);
    if (lost == STATUS_DEVICE || lost == STATUS_COMM) return lost;
    if (lost) r->saved_step = -1;
    TRY(run_checkpoint_save(r, false));
    TRY(checkpointer_wait(r->checkpointer));
    return STATUS_OK;
}

/* torchtitan's checkpoints have no data position that is read: data starts from the first row. */
static enum status resume_data(struct training_run *r, const struct start *from,
                               const struct json *cursor)
{
    bool starts_over = option_list_contains(&from->excluded, "dataloader");
    if (starts_over || !r->reads || json_is_null(cursor)) return STATUS_OK;
    TRY(loader_load(r->loader, cursor));
    return STATUS_OK;
}

/* The optimizer's own count of steps, on which AdamW's bias correction depends: moments that are
 * not loaded begin at zero now, and others have seen the steps of the checkpoint. */
static void count_moments(struct trainer *t, const struct start *from,
                          const struct checkpoint_found *found)
{
    bool is_counted = json_get(found->train, "moment_steps");
    if (option_list_contains(&from->excluded, "optimizer"))
        t->moments_begin = t->steps_done;
    else if (!is_counted)
        t->moments_begin = t->steps_done - found->step;
}

/* Restores steps, counters, FP8 scales and data cursor from a checkpoint of this run. */
static enum status resume_state(struct training_run *r, const struct start *from,
                                const struct checkpoint_found *found)
{
    struct trainer *t = &r->trainer;
    bool has_moments = !option_list_contains(&from->excluded, "optimizer");
    if (found->step == 0 && !found->train) return STATUS_OK; /* initial weights */
    TRY(start_check_state(from, r->whole, found));
    r->has_only_model = !found->has_moments;
    if (!option_list_contains(&from->excluded, "lr_scheduler")) t->steps_done = found->step;
    TRY(trainer_state_load(t, found->train, has_moments));
    count_moments(t, from, found);
    bool continues = t->steps_done == found->step; /* else the count of steps is another */
    TRY(guard_load(&r->guard, continues ? json_get(found->train, "guard") : NULL));
    r->validation_due = r->config->validation.enable && continues &&
                        json_true(json_get(found->train, "validation_due"));
    TRY(resume_data(r, from, json_get(found->train, "data")));
    return STATUS_OK;
}

/* Without training.global_batch_size a step's rows depend on the ranks.  `train`: the checkpoint's;
 * in an old one full_step_rows is missing. */
static void warn_of_other_rows(const struct training_run *r, const struct json *train)
{
    const struct config *c = r->whole;
    int64_t rows = r->trainer.ramp.global, before;
    bool depends_on_ranks = c->training.global_batch_size < 0 && data_stages_count(c) == 1;
    if (!r->is_main || !depends_on_ranks ||
        !json_as_int(json_get(train, "full_step_rows"), 1, JSON_MAX_INT, &before) || before == rows)
        return;
    log_line(LOG_WARN,
             "a step now has %lld rows instead of %lld: training.local_batch_size times the "
             "data-parallel ranks. To keep %lld on any ranks, set training.global_batch_size=%lld",
             (long long)rows, (long long)before, (long long)before, (long long)before);
}

static enum status compare_start(const struct training_run *r, const struct start *from)
{
    return r->is_main ? start_compare(from, r->whole, &r->trainer.shape, true) : STATUS_OK;
}

static enum status load_checkpoint(struct training_run *r, const struct start *from)
{
    struct checkpoint_state state = run_checkpoint_state(r);
    struct trainer *t = &r->trainer;
    struct checkpoint_found found = {0};
    const struct load_rules rules = start_load_rules(from);
    enum status st = STATUS_OK;
    activity_enter(ACTIVITY_loading);
    TRY_OUT(comm_agree(training_run_world(r), compare_start(r, from)));
    if (!from->whole) state.exp_avg = state.exp_avg_sq = NULL;
    TRY_OUT(rank_check_start(from, training_run_world(r)));
    TRY_OUT(checkpoint_load(from->folder, &state, &rules, &found));
    if (from->whole) TRY_OUT(comm_agree(training_run_world(r), resume_state(r, from, &found)));
    if (from->own && t->steps_done) warn_of_other_rows(r, found.train);
    if (!found.has_ema) TRY_OUT(trainer_start_ema(t));
    if (t->optim.ema && from->whole && found.train && !found.has_ema)
        log_line(LOG_INFO, "%s has no moving average of the weights: it starts from them",
                 from->folder);
    log_line(LOG_INFO, "%s %s",
             from->whole && found.train ? "resuming from" : "starting from the weights of",
             from->folder);
out:
    json_free(found.state);
    return st;
}

/* A checkpoint of this run has all weights, so that they need no initial values. */
static enum status init_weights(struct training_run *r, const struct start *from)
{
    bool is_complete = from->own && from->native && from->whole;
    if (is_complete) return trainer_zero_weights(&r->trainer);
    TRY(trainer_init_weights(&r->trainer, (uint64_t)r->config->debug.seed));
    return trainer_start_ema(&r->trainer);
}

static void note_own_start(struct training_run *r, const struct start *s)
{
    r->saved_step = r->trainer.steps_done;
    r->counts_again = s->step > 0 && option_list_contains(&s->excluded, "lr_scheduler");
}

enum status run_checkpoint_fill(struct training_run *r)
{
    struct start_search search = {.limit = INT64_MAX, .fetch = true};
    struct trainer *t = &r->trainer;
    struct start start;
    struct failure unreadable = {0};
    enum status st;
    do {
        st = start_find(&start, r->config, &search, training_run_world(r));
        /* A checkpoint that cannot be read now may be intact. */
        if (st == STATUS_DATA && unreadable.status) return status_restore(&unreadable);
        TRY(st);
        st = init_weights(r, &start);
        if (!st && start.folder) st = load_checkpoint(r, &start);
        bool is_unusable = st == STATUS_DATA || st == STATUS_IO;
        bool falls_back = is_unusable && start.native && !start.rewinds;
        if (!st && start.own) note_own_start(r, &start);
        if (!st) st = start_finish(&start, r->whole, r->checkpointer, training_run_world(r));
        search.limit = start.step;
        start_release(&start);
        if (st && !falls_back) return st;
        if (st == STATUS_IO) status_save(&unreadable, st);
        if (st && comm_logs_failure(training_run_world(r), st))
            log_line(LOG_WARN, "falling back to an older checkpoint: %s", status_message());
    } while (st);
    TRY(trainer_sync_weights(t));
    return STATUS_OK;
}
