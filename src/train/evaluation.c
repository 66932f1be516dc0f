// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include "base/signals.h"

void batch_take(struct batch *b, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    *b = (struct batch){.B = B, .T = T};
    b->ids_BT = arena_take(run, tokens, sizeof *b->ids_BT);
    b->labels_BT = arena_take(run, tokens, sizeof *b->labels_BT);
    b->start_BT = arena_take(run, tokens, sizeof *b->start_BT);
    b->end_BT = arena_take(run, tokens, sizeof *b->end_BT);
}

void evaluator_take(struct evaluator *e, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    batch_take(&e->batch, B, T, run);
    e->loss_BT = arena_take(run, tokens, sizeof *e->loss_BT);
    e->best_BT = arena_take(run, tokens, sizeof *e->best_BT);
}

static enum status forward(const struct evaluator *e, struct arena *step)
{
    const struct batch *b = &e->batch;
    struct micro_batch micro = {
        .B = b->B,
        .T = b->T,
        .ids_BT = b->ids_BT,
        .labels_BT = b->labels_BT,
        .start_BT = e->documents ? b->start_BT : NULL,
        .end_BT = e->documents ? b->end_BT : NULL,
        .causal = e->causal,
        .loss_BT = e->loss_BT,
        .best_BT = e->best_BT,
    };
    size_t mark = arena_mark(step);
    enum status st = model_evaluate(e->model, &micro, step);
    arena_reset(step, mark);
    return st;
}

enum status evaluator_measure(const struct evaluator *e, struct arena *step)
{
    TRY(forward(e, step));
    return STATUS_OK;
}

enum status evaluator_run(struct evaluator *e, struct loader *loader, int64_t batches,
                          struct arena *step, struct evaluation *out)
{
    *out = (struct evaluation){0};
    bool bytes_known = true;
    while (out->batches != batches && !signals_pending()) {
        int rows;
        TRY(loader_next(loader, &e->batch, &rows));
        if (!rows) break;
        TRY(forward(e, step));
        size_t tokens = (size_t)e->batch.B * (size_t)e->batch.T;
        for (size_t i = 0; i < tokens; i++) {
            out->loss_sum += (double)e->loss_BT[i];
            out->correct += e->best_BT[i] == e->batch.labels_BT[i];
        }
        out->tokens += e->batch.valid;
        out->bytes += e->batch.bytes;
        bytes_known = bytes_known && (e->batch.bytes || !e->batch.valid);
        out->batches++;
    }
    if (!bytes_known) out->bytes = 0;
    return STATUS_OK;
}
