// SPDX-License-Identifier: Apache-2.0
#include "train/evaluator.h"

#include "base/progress.h"
#include "base/signals.h"
#include "base/text.h"
#include "model/head.h"
#include "tensor/device.h"
#include "train/microbatch.h"

#include <math.h>
#include <stdlib.h>

void evaluator_alloc(struct evaluator *e, int B, int T, struct arena *run)
{
    int microbatches = B / (e->microbatch_rows ? e->microbatch_rows : B);
    e->pipeline.schedule.num_microbatches = microbatches;
    e->pipeline.forward_only = true;
    pipeline_open(&e->pipeline);
    e->microbatches = heap((size_t)microbatches * sizeof *e->microbatches);
    batch_alloc(&e->batch, B, T, run);
    if (e->has_weights) batch_alloc_weights(&e->batch, run);
    batch_alloc_part(&e->batch, e->contexts, &e->local, run);
    size_t tokens = (size_t)B * (size_t)e->local.T;
    e->loss_BT = arena_alloc(run, tokens, sizeof *e->loss_BT);
    e->best_BT = arena_alloc(run, tokens, sizeof *e->best_BT);
}

void evaluator_release(struct evaluator *e)
{
    pipeline_close(&e->pipeline);
    free(e->microbatches);
    e->microbatches = NULL;
}

static enum status run_forward(struct evaluator *e, struct arena *step)
{
    int count = e->pipeline.schedule.num_microbatches;
    struct batch uploaded;
    size_t mark = arena_mark(step);
    TRY(batch_upload(&e->local, e->pipeline.model->queue, step, &uploaded));
    for (int i = 0; i < count; i++) {
        struct microbatch micro = microbatch_from_batch(&uploaded, i, count, e->documents);
        size_t first = (size_t)i * (size_t)micro.B * (size_t)micro.T;
        micro.causal = e->causal;
        if (micro.ids_BT)
            micro.head_tokens =
                head_count_tokens(e->pipeline.model, &micro, uploaded.num_labels[i]);
        if (e->best_BT) micro.best_BT = e->best_BT + first, micro.loss_BT = e->loss_BT + first;
        e->microbatches[i] = micro;
    }
    TRY(pipeline_run(&e->pipeline, e->microbatches, step));
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status evaluator_size(struct evaluator *e, struct arena *step)
{
    TRY(run_forward(e, step));
    return STATUS_OK;
}

enum status evaluator_forward(struct evaluator *e, struct arena *step)
{
    batch_copy_part(&e->batch, e->contexts, e->causal, &e->local);
    batch_order_labels(&e->local, e->pipeline.schedule.num_microbatches);
    TRY(run_forward(e, step));
    TRY(queue_wait(e->pipeline.model->queue));
    return STATUS_OK;
}

/* Reads the next batch; *more: some rank has rows. */
static enum status next_batch(struct evaluator *e, struct loader *loader, bool *more)
{
    int rows = 0;
    enum status st = loader ? loader_next(loader, &e->batch, &rows) : STATUS_OK;
    int64_t state[2] = {rows > 0, signals_pending() > 0};
    TRY(comm_agree(e->peers, comm_agree(e->readers, st)));
    TRY(comm_all_reduce_int64(e->peers, REDUCE_MAX, state, 2));
    TRY(comm_all_reduce_int64(e->readers, REDUCE_MAX, state, 2));
    TRY(batch_broadcast(&e->batch, e->peers));
    *more = state[0] && !state[1];
    return STATUS_OK;
}

/* Sums over all ranks.  Losses are known to the last stage only, for its tokens; counts to all
 * peers.  Counts travel with the losses, in one all-reduce: doubles hold them exactly. */
static enum status sum_over_ranks(const struct evaluator *e, struct exact_sum *exact,
                                  struct evaluation *v)
{
    enum { LOSS_SUM, CORRECT, MARK_LOSS_SUM, MARKS, TOKENS, BYTES, COUNT, NUM_LOSSES = TOKENS };
    double sums[COUNT] = {v->loss_sum,      (double)v->correct, v->mark_loss_sum,
                          (double)v->marks, (double)v->tokens,  (double)v->bytes};
    TRY(comm_all_reduce(e->contexts, REDUCE_SUM, sums, NUM_LOSSES));
    TRY(comm_all_reduce(e->pipeline.group, REDUCE_SUM, sums, NUM_LOSSES));
    TRY(comm_all_reduce(e->readers, REDUCE_SUM, sums, COUNT));
    if (e->is_exact) {
        TRY(comm_all_reduce_exact(e->contexts, exact));
        TRY(comm_all_reduce_exact(e->pipeline.group, exact));
        TRY(comm_all_reduce_exact(e->readers, exact));
        sums[LOSS_SUM] = exact_sum_value(exact);
    }
    v->loss_sum = sums[LOSS_SUM], v->correct = (int64_t)sums[CORRECT];
    v->mark_loss_sum = sums[MARK_LOSS_SUM], v->marks = (int64_t)sums[MARKS];
    v->tokens = (int64_t)sums[TOKENS], v->bytes = (int64_t)sums[BYTES];
    return STATUS_OK;
}

enum status evaluator_run(struct evaluator *e, struct loader *loader, int64_t batches,
                          struct arena *step, struct evaluation *out)
{
    struct exact_sum exact = {0};
    *out = (struct evaluation){0};
    while (out->batches != batches) {
        bool more;
        TRY(next_batch(e, loader, &more));
        if (!more) break;
        TRY(evaluator_forward(e, step));
        size_t tokens = (size_t)e->local.B * (size_t)e->local.T;
        for (size_t i = 0; i < tokens && pipeline_has_loss(&e->pipeline); i++) {
            out->loss_sum += (double)e->loss_BT[i];
            if (e->is_exact) exact_sum_add(&exact, (double)e->loss_BT[i]);
            out->correct += e->best_BT[i] == e->local.labels_BT[i];
            if (!e->has_marks || e->local.labels_BT[i] != e->mark) continue;
            out->mark_loss_sum += (double)e->loss_BT[i];
            out->marks++;
        }
        out->tokens += e->batch.valid;
        out->bytes += e->batch.bytes;
        out->batches++;
        progress_add((double)e->batch.valid);
    }
    TRY(sum_over_ranks(e, &exact, out));
    return STATUS_OK;
}

enum status evaluator_check_tokens(const struct evaluation *v, const char *data)
{
    if (!v->tokens) FAIL(DATA, "%s: the data contains no tokens to predict", data);
    return STATUS_OK;
}

enum status evaluator_check(const struct evaluation *v, const char *data)
{
    TRY(evaluator_check_tokens(v, data));
    if (!isfinite(v->loss_sum))
        FAIL(DIVERGED,
             "%s: the loss is %g: expected a finite value; the model's activations overflow: try "
             "training.mixed_precision_param=float32, or another checkpoint",
             data, isnan(v->loss_sum) ? fabs(NAN) : v->loss_sum);
    return STATUS_OK;
}
