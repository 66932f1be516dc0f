// SPDX-License-Identifier: Apache-2.0
#include "train/rollback.h"

#include "base/activity.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "train/start.h"
#include "train/trainer_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The guard keeps what it knows of rollbacks. */
static enum status restore_guard(struct guard *g, const struct json *train)
{
    struct guard now = *g;
    TRY(guard_load(g, json_get(train, "guard")));
    g->rollbacks = now.rollbacks, g->last_spike = now.last_spike, g->good_step = now.good_step;
    return STATUS_OK;
}

/* What a start from a checkpoint leaves out (checkpoint.exclude_from_loading): the run has left it
 * out since. */
struct left_out {
    int64_t optimizer, lr_scheduler, data;
};

static enum status find_left_out(const struct rollback *b, const char *folder, struct left_out *out)
{
    const struct config *c = b->trainer->config;
    const struct comm *world = b->state->world;
    *out = (struct left_out){0};
    if (world->rank == 0)
        *out = (struct left_out){.optimizer = start_leaves_out(folder, c, "optimizer"),
                                 .lr_scheduler = start_leaves_out(folder, c, "lr_scheduler"),
                                 .data = start_leaves_out(folder, c, "dataloader")};
    return comm_broadcast_bytes(world, 0, out, sizeof *out);
}

/* `starts_over`: since the checkpoint, the data has started from its first row. */
static enum status skip_rows(struct rollback *b, const struct json *cursor, bool starts_over)
{
    int64_t next = 0, position;
    if (!b->loader) return STATUS_OK;
    if (!starts_over)
        TRY(loader_read_next(cursor, b->trainer->config->data.order, &next, &position));
    if (next > (int64_t)loader_position(b->loader))
        FAIL(DATA, "the data position is after row %lld, where the run is",
             (long long)loader_position(b->loader));
    b->rows = (struct row_interval){(uint64_t)next, loader_position(b->loader)};
    loader_record_skipped(b->loader, b->rows);
    return STATUS_OK;
}

static enum status restore(struct rollback *b, const char *folder,
                           const struct checkpoint_found *found, bool starts_over)
{
    if (!found->train || !found->has_moments)
        FAIL(DATA, "%s has only the model, so that the run cannot go back to it", folder);
    b->trainer->steps_done = found->step;
    TRY(trainer_state_load(b->trainer, found->train, true));
    TRY(restore_guard(b->guard, found->train));
    TRY(skip_rows(b, json_get(found->train, "data"), starts_over));
    return STATUS_OK;
}

static enum status load(struct rollback *b, const char *folder, bool starts_over)
{
    struct checkpoint_found found = {0};
    const struct load_rules rules = {.resumes = true};
    enum status st = checkpoint_load(folder, b->state, &rules, &found);
    if (!st && !found.has_ema) st = trainer_start_ema(b->trainer); /* likewise when a run resumes */
    if (!st) st = comm_agree(b->state->world, restore(b, folder, &found, starts_over));
    json_free(found.state);
    TRY(st);
    return trainer_sync_weights(b->trainer);
}

/* The newest checkpoint before `limit` that is intact, but none from before a start that left out
 * the optimizer or the schedule. */
static enum status load_newest(struct rollback *b, int64_t limit)
{
    const struct comm *world = b->state->world;
    struct failure damage = {0};
    enum status st;
    b->to = -1;
    activity_enter(ACTIVITY_loading);
    do {
        char *folder;
        TRY(checkpoint_find(b->folder, limit, true, world, &folder));
        if (!folder) return status_restore(&damage);
        struct left_out left_out;
        limit = folder_path_step(folder);
        st = find_left_out(b, folder, &left_out);
        if (st || limit < b->first_step || left_out.optimizer || left_out.lr_scheduler) {
            free(folder);
            return st ? st : status_restore(&damage);
        }
        st = load(b, folder, left_out.data);
        free(folder);
        if (st && st != STATUS_DATA) return st;
        if (st) status_save(&damage, st);
        if (st && comm_logs_failure(world, st))
            log_line(LOG_WARN, "falling back to an older checkpoint: %s", status_message());
    } while (st);
    b->to = limit;
    return STATUS_OK;
}

int64_t rollback_limit(const struct guard *g, int64_t step)
{
    int64_t first = g->spike_begin ? g->spike_begin : step;
    return first - 1 > g->good_step + 1 ? first - 1 : g->good_step + 1;
}

bool rollback_is_enabled(const struct guard_config *c)
{
    return c->on_spike == ON_SPIKE_rollback || c->nonfinite == NONFINITE_rollback;
}

/* Says on rank 0 why the run cannot roll back. */
static enum status fail(const struct rollback *b, const char *why)
{
    const struct step_result *s = b->result;
    const struct comm *world = b->state->world;
    enum status st = STATUS_OK;
    if (world->rank == 0)
        st = FAILURE(DIVERGED, "step %lld: loss %g, gradient norm %g, and %s", (long long)s->step,
                     s->loss, s->grad_norm, why);
    return comm_agree(world, st);
}

enum status rollback_run(struct rollback *b)
{
    const struct step_result *s = b->result;
    const struct comm *world = b->state->world;
    struct guard before = *b->guard;
    int64_t most = b->trainer->config->guard.max_rollbacks;
    if (!guard_count_rollback(b->guard, s->step, most))
        return fail(b, "guard.max_rollbacks is reached");
    activity_enter(ACTIVITY_saving);
    checkpointer_drain(b->checkpointer);
    b->loss = before.spike_begin ? before.spike_loss : s->loss;
    TRY(load_newest(b, rollback_limit(&before, s->step)));
    if (b->to < 0 && (s->skipped || b->is_needed))
        return fail(b, "there is no checkpoint to go back to");
    b->guard->good_step = b->to;
    if (b->to >= 0) return checkpointer_abandon(b->checkpointer, b->to, NULL, NULL);
    if (world->rank == 0)
        log_line(LOG_WARN, "step %lld: there is no checkpoint to go back to; the run continues",
                 (long long)s->step);
    *b->guard = before;
    return STATUS_OK;
}

void rollback_report(const struct rollback *b, struct metrics *m)
{
    const struct rollback_metrics record = {.step = b->to,
                                            .from = b->result->step,
                                            .first_row = (int64_t)b->rows.begin,
                                            .last_row = (int64_t)b->rows.end - 1,
                                            .loss = b->loss};
    log_line(LOG_WARN,
             "rolled back from step %lld to the checkpoint of step %lld; skipping rows %lld to "
             "%lld",
             (long long)record.from, (long long)record.step, (long long)record.first_row,
             (long long)record.last_row);
    metrics_rollback(m, &record);
}

static void list_checkpoints(const char *folder, struct text *out)
{
    struct folder_steps l;
    if (folder_steps_read(&l, folder)) return;
    if (!l.count) {
        text_adds(out,
                  "; no checkpoint was saved: start again with other settings, such as a lower "
                  "optimizer.lr");
    } else {
        long long newest = l.steps[l.count - 1], older = l.steps[l.count > 1 ? l.count - 2 : 0];
        text_addf(out,
                  "; resume with other settings, such as a lower optimizer.lr, from the newest "
                  "checkpoint, step %lld%s, with checkpoint.load_step=%lld",
                  newest, older < newest ? ", or from an earlier one" : "", older);
    }
    folder_steps_release(&l);
}

enum status rollback_advise(const char *folder, enum status st)
{
    struct failure why = {0};
    struct text advice = {0};
    if (st != STATUS_DIVERGED || status_is_remote()) return st;
    status_save(&why, st);
    list_checkpoints(folder, &advice);
    size_t used = strlen(why.message);
    if (advice.len) snprintf(why.message + used, sizeof why.message - used, "%s", advice.data);
    text_release(&advice);
    return status_restore(&why);
}
