// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include "base/activity.h"
#include "base/clock.h"
#include "model/head.h"
#include "ops/update.h"
#include "optim/ema.h"
#include "optim/muon.h"
#include "train/microbatch.h"

#include <math.h>

int trainer_readers(const struct mesh *m) { return mesh_group_size(m, GROUP_data); }

int trainer_rows(const struct config *c, const struct mesh *m)
{
    return (int)config_reader_rows(c, m, config_step_rows(c, m));
}

int trainer_validation_tokens(const struct config *c)
{
    return (int)(c->validation.seq_len ? c->validation.seq_len : c->training.seq_len);
}

/* Labels of an average microbatch, whose time `plan` estimates: masked diffusion masks half of the
 * tokens on average. */
static int expected_labels(const struct objective_config *o, int tokens)
{
    switch (o->name) {
    case OBJECTIVE_causal: break;
    case OBJECTIVE_masked: return (int)(o->mask_probability * tokens);
    case OBJECTIVE_diffusion: return tokens / 2;
    }
    return tokens;
}

struct microbatch trainer_microbatch(const struct trainer *t, int i)
{
    int count = t->pipeline.schedule.num_microbatches;
    struct microbatch micro = microbatch_from_batch(&t->uploaded, i, count, t->evaluator.documents);
    micro.causal = t->evaluator.causal, micro.last = i == count - 1;
    micro.z_loss = (float)t->config->training.z_loss;
    if (t->loss_BT) micro.loss_BT = t->loss_BT + (size_t)i * (size_t)micro.B * (size_t)micro.T;
    int num_labels = micro.ids_BT ? t->uploaded.num_labels[i]
                                  : expected_labels(&t->config->objective, micro.B * micro.T);
    micro.head_tokens = head_count_tokens(&t->model, &micro, num_labels);
    return micro;
}

/* Scale of the losses of the i-th microbatch and of their gradients; `valid`: tokens of the global
 * batch.  So the sum over ranks is the average loss over all tokens.  loss_norm = "rank_mean" takes
 * the mean over local_batch_size rows at a time, and the average of these over ranks. */
static double loss_scale(const struct trainer *t, int i, int64_t valid)
{
    const struct training_config *c = &t->config->training;
    int rows = (int)c->local_batch_size, means = t->batch.B / rows;
    if (c->loss_norm == LOSS_NORM_rank_mean) {
        int first = i * t->microbatches[i].B / rows * rows;
        valid =
            batch_count_valid(&t->batch, first, rows) * means * trainer_group(t, GROUP_data)->size;
    }
    return valid ? 1.0 / (double)valid : 0;
}

/* Sum of a microbatch's losses on this rank. */
static double loss_sum(const struct microbatch *micro)
{
    double sum = 0;
    for (int n = 0; n < micro->B * micro->T; n++) sum += (double)micro->loss_BT[n];
    return sum;
}

/* For elastic sums, which keep microbatches apart. */
static void share_losses(struct trainer *t, int64_t valid)
{
    for (int i = 0; i < t->pipeline.schedule.num_microbatches; i++) {
        const struct microbatch *micro = &t->microbatches[i];
        double scale = loss_scale(t, i, valid);
        double all = (double)batch_count_valid(&t->batch, i * micro->B, micro->B) * scale;
        t->sums.shares[i] =
            (struct loss_share){t->loss_BT ? loss_sum(micro) * scale : 0, all > 0 ? 1 / all : 0};
    }
}

/* Runs all microbatches: accumulates their gradients and sums this rank's losses. */
static enum status run_microbatches(struct trainer *t, int64_t valid, double *loss)
{
    int num_microbatches = t->pipeline.schedule.num_microbatches;
    size_t mark = arena_mark(&t->step);
    TRY(batch_upload(&t->local, t->machine.queue, &t->step, &t->uploaded));
    for (int i = 0; i < num_microbatches; i++) {
        t->microbatches[i] = trainer_microbatch(t, i);
        t->microbatches[i].scale = (float)loss_scale(t, i, valid);
    }
    TRY(step_graph_upload(&t->step_graph, t->microbatches, num_microbatches));
    TRY(step_graph_run(&t->step_graph, t->microbatches, num_microbatches, &t->step));
    TRY(queue_wait(t->machine.queue));
    arena_reset(&t->step, mark);
    *loss = 0;
    for (int i = 0; i < num_microbatches && t->loss_BT; i++)
        *loss += loss_sum(&t->microbatches[i]) * loss_scale(t, i, valid);
    if (t->elastic.canonical) share_losses(t, valid);
    return STATUS_OK;
}

enum status trainer_finish_gradients(struct trainer *t)
{
    TRY(fsdp_finish_gradients(&t->fsdp));
    for (int i = 0; i < REPLICATED_COUNT; i++)
        TRY(replicas_all_reduce(&t->replicas[i], t->gradients, t->optim.gradients));
    return STATUS_OK;
}

/* Forward and backward: gradients of the global batch, losses of this rank. */
static enum status forward_backward(struct trainer *t, struct loss_share *local)
{
    struct trace *trace = t->machine.queue->trace;
    const struct comm *readers = trainer_group(t, GROUP_data),
                      *contexts = trainer_group(t, GROUP_cp);
    int64_t valid = t->batch.valid;
    batch_copy_part(&t->batch, contexts, t->evaluator.causal, &t->local);
    batch_order_labels(&t->local, t->pipeline.schedule.num_microbatches);
    TRY(comm_all_reduce_int64(readers, REDUCE_SUM, &valid, 1));
    t->fsdp.step = (uint64_t)t->steps_done + 1;
    fsdp_begin_step(&t->fsdp);
    if (t->model.float8) float8_begin_step(&t->float8);
    TRY(run_microbatches(t, valid, &local->loss));
    double begin = trace_begin(trace);
    TRY(trainer_finish_gradients(t));
    if (trainer_group(t, GROUP_world)->size > 1) trace_end(trace, "wait for gradients", begin);
    bool rank_mean = t->config->training.loss_norm == LOSS_NORM_rank_mean;
    local->mean_scale = rank_mean        ? readers->size
                        : t->batch.valid ? (double)valid / (double)t->batch.valid
                                         : 0;
    return STATUS_OK;
}

/* Gathered and FP8 copies of weights are made again before their next use. */
static enum status forget_gathered_weights(struct trainer *t)
{
    fsdp_invalidate_weights(&t->fsdp);
    if (!t->model.float8) return STATUS_OK;
    TRY(queue_wait(t->machine.queue));
    float8_forget_weights(&t->float8);
    return STATUS_OK;
}

/* Runs forward and backward twice where guard.replay_every says so. */
static enum status replay_forward_backward(struct trainer *t, struct loss_share *local)
{
    struct integrity *g = &t->integrity;
    int64_t step = t->steps_done + 1;
    if (!integrity_is_replayed(g, step)) return forward_backward(t, local);
    for (int pass = 0; pass < 2; pass++) {
        t->fsdp.observer = integrity_begin_pass(g, pass);
        TRY(forget_gathered_weights(t));
        TRY(forward_backward(t, local));
        TRY(integrity_end_pass(g, t->loss_BT, t->local.B * t->local.T, t->gradients));
    }
    t->fsdp.observer = NULL;
    TRY(integrity_compare_passes(g, step));
    return STATUS_OK;
}

/* FP8 scales of the next step, from the amaxes of this one on any rank. */
static enum status update_float8_scales(struct trainer *t)
{
    struct float8_state *f = &t->float8;
    if (!t->model.float8) return STATUS_OK;
    if (float8_num_amax(f)) { /* delayed scaling */
        TRY(queue_wait(t->machine.queue));
        TRY(float8_collect_amax(f));
        TRY(comm_all_reduce(trainer_group(t, GROUP_world), REDUCE_MAX, f->global_amax,
                            float8_num_amax(f)));
    }
    float8_update_scales(f);
    return STATUS_OK;
}

enum status trainer_parameter_norm(const struct trainer *t, double *norm)
{
    struct unsplit all = {t->shard.elements};
    struct unsplit_io io = {t->optim.copy, t->optim.low, t->gradients};
    if (!t->optim.split) return step_sums_norm(&t->sums, t->optim.weights, norm);
    if (t->optim.gradients == BF16) {
        struct split_chunk c = {.half = t->optim.copy, .low = t->optim.low};
        c.x = fsdp_idle_buffer(&t->fsdp, &c.elements);
        return step_sums_split_norm(&t->sums, &c, norm);
    }
    TRY(unsplit(t->machine.ops, &all, &io, t->machine.queue));
    return step_sums_norm(&t->sums, t->gradients, norm);
}

enum status trainer_update_weights(struct trainer *t, const struct optim_update *u)
{
    const struct ops *ops = t->machine.ops;
    struct queue *queue = t->machine.queue;
    TRY(optim_step(&t->optim, ops, u, queue));
    TRY(muon_step(&t->optim, ops, u, queue));
    TRY(ema_step(&t->optim, ops, queue));
    return STATUS_OK;
}

enum status trainer_train_batch(struct trainer *t, struct step_result *result)
{
    const struct config *c = t->config;
    struct queue *queue = t->machine.queue;
    struct loss_share local;
    struct step_totals totals;
    double begin = queue_begin_span(queue, "forward and backward");
    activity_enter(ACTIVITY_computing);
    TRY(replay_forward_backward(t, &local));
    TRY(integrity_check(&t->integrity, t->steps_done));
    queue_end_span(queue, "forward and backward", begin);
    begin = queue_begin_span(queue, "optimizer");
    activity_enter(ACTIVITY_updating);
    TRY(step_sums_reduce(&t->sums, &local, t->gradients, &totals));
    result->loss = totals.loss, result->max_loss = totals.max_loss;
    result->grad_norm = totals.grad_norm;
    const struct lr_scheduler_config *s = &c->lr_scheduler;
    const struct schedule_step now = {t->steps_done + 1, c->training.steps, t->rows_done,
                                      t->ramp.global};
    double decoupled = c->optimizer.decoupled_lr;
    result->step = now.step;
    result->lr = schedule_lr(s, c->optimizer.lr, &now);
    result->skipped = !isfinite(result->loss) || !isfinite(result->grad_norm);
    t->skips = result->skipped ? t->skips + 1 : 0;
    if (!result->skipped) {
        t->is_updating = true;
        double clip = optim_clip_factor(result->grad_norm, c->training.max_norm);
        struct optim_update update = {t->gradients,  result->lr,
                                      clip,          now.step - t->moments_begin,
                                      decoupled > 0, schedule_decoupled_lr(s, decoupled, &now)};
        TRY(trainer_update_weights(t, &update));
        fsdp_invalidate_weights(&t->fsdp);
        TRY(update_float8_scales(t));
        TRY(integrity_record(&t->integrity, now.step));
    }
    queue_end_span(queue, "optimizer", begin);
    t->steps_done++, t->rows_done += t->step_rows;
    t->tokens_seen += t->step_rows * t->batch.T;
    t->is_updating = false;
    return STATUS_OK;
}

/* Counts a step of guard.skip_steps, whose batch was read. */
static void skip_step(struct trainer *t, struct step_result *result, double data_seconds)
{
    t->steps_done++, t->rows_done += t->step_rows;
    *result = (struct step_result){
        .step = t->steps_done, .data_seconds = data_seconds, .skips_rows = true};
}

enum status trainer_step(struct trainer *t, struct loader *loader, struct step_result *result)
{
    int rows;
    double begin = clock_monotonic_s();
    trainer_begin_step(t);
    enum status st =
        loader ? loader_next_step(loader, &t->batch, (uint64_t)t->step_rows, &rows) : STATUS_OK;
    TRY(comm_agree(trainer_group(t, GROUP_world), st));
    if (option_ranges_contain(&t->config->guard.skip_steps, t->steps_done + 1)) {
        skip_step(t, result, clock_monotonic_s() - begin);
        return STATUS_OK;
    }
    result->skips_rows = false;
    TRY(batch_broadcast(&t->batch, trainer_group(t, GROUP_peers)));
    result->data_seconds = clock_monotonic_s() - begin;
    trace_end(t->machine.queue->trace, "data", begin);
    TRY(trainer_train_batch(t, result));
    return STATUS_OK;
}

void trainer_undo_skipped(struct trainer *t)
{
    BUG_IF(!t->skips);
    t->steps_done--, t->skips--, t->rows_done -= t->step_rows;
    t->tokens_seen -= t->step_rows * t->batch.T;
}

/* The master weights. */
static struct store weight_store(const struct trainer *t)
{
    struct queue *queue = t->machine.queue;
    if (t->optim.split)
        return (struct store){
            .x = t->optim.copy, .low = t->optim.low, .dtype = BF16, .queue = queue};
    return store_f32(t->optim.weights, queue);
}

enum status trainer_init_weights(struct trainer *t, uint64_t seed)
{
    struct store to = weight_store(t);
    return init_weights_store(&t->whole, &t->shard, &t->shape, seed, &to);
}

enum status trainer_zero_weights(struct trainer *t)
{
    struct store to = weight_store(t);
    return store_zero(&to, t->shard.elements);
}

enum status trainer_start_ema(struct trainer *t)
{
    return ema_start(&t->optim, t->machine.ops, t->machine.queue);
}

enum status trainer_sync_weights(struct trainer *t)
{
    TRY(forget_gathered_weights(t));
    integrity_forget(&t->integrity);
    if (!t->optim.copy || t->optim.split) return STATUS_OK;
    struct cast all = {.n = t->shard.elements, .to = BF16};
    struct cast_io io = {t->optim.weights, t->optim.copy};
    TRY(cast(t->machine.ops, &all, &io, t->machine.queue));
    return STATUS_OK;
}
