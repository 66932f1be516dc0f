// SPDX-License-Identifier: Apache-2.0
#include "train/evaluation.h"

#include "base/signals.h"
#include "base/text.h"
#include "ops/context.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

void batch_take(struct batch *b, int B, int T, struct arena *run)
{
    size_t tokens = (size_t)B * (size_t)T;
    *b = (struct batch){.B = B, .T = T};
    b->ids_BT = arena_take(run, tokens, sizeof *b->ids_BT);
    b->labels_BT = arena_take(run, tokens, sizeof *b->labels_BT);
    b->start_BT = arena_take(run, tokens, sizeof *b->start_BT);
    b->end_BT = arena_take(run, tokens, sizeof *b->end_BT);
}

void batch_here_take(const struct batch *whole, const struct comm *contexts, struct batch *here,
                     struct arena *run)
{
    *here = *whole;
    if (contexts->size > 1) batch_take(here, whole->B, whole->T / contexts->size, run);
}

void batch_cut(const struct batch *whole, const struct comm *contexts, bool causal,
               struct batch *here)
{
    struct context cut = {contexts->size, contexts->rank, causal};
    const int32_t *const from[] = {whole->ids_BT, whole->labels_BT, whole->start_BT, whole->end_BT};
    int32_t *const to[] = {here->ids_BT, here->labels_BT, here->start_BT, here->end_BT};
    struct token_run runs[MOST_RUNS];
    int num_runs = context_runs(&cut, here->T, runs);
    here->valid = whole->valid, here->bytes = whole->bytes;
    if (contexts->size == 1) return;
    for (int i = 0; i < 4; i++)
        for (int b = 0; b < whole->B; b++)
            for (int r = 0; r < num_runs; r++)
                memcpy(to[i] + (size_t)b * (size_t)here->T + (size_t)runs[r].at,
                       from[i] + (size_t)b * (size_t)whole->T + (size_t)runs[r].first,
                       (size_t)runs[r].count * sizeof *to[i]);
}

void evaluator_take(struct evaluator *e, int B, int T, struct arena *run)
{
    int micros = B / (e->micro_rows ? e->micro_rows : B);
    e->pipeline.schedule.micros = micros;
    e->pipeline.forward_only = true;
    pipeline_open(&e->pipeline);
    e->micros = heap((size_t)micros * sizeof *e->micros);
    batch_take(&e->batch, B, T, run);
    batch_here_take(&e->batch, e->contexts, &e->here, run);
    size_t tokens = (size_t)B * (size_t)e->here.T;
    e->loss_BT = arena_take(run, tokens, sizeof *e->loss_BT);
    e->best_BT = arena_take(run, tokens, sizeof *e->best_BT);
}

void evaluator_release(struct evaluator *e)
{
    pipeline_close(&e->pipeline);
    free(e->micros);
    e->micros = NULL;
}

static enum status forward(struct evaluator *e, struct arena *step)
{
    const struct batch *b = &e->here;
    int rows = b->B / e->pipeline.schedule.micros;
    for (int row = 0, i = 0; row < b->B; row += rows, i++) {
        size_t at = (size_t)row * (size_t)b->T;
        struct micro_batch *micro = &e->micros[i];
        *micro = (struct micro_batch){.B = rows, .T = b->T, .causal = e->causal};
        if (e->best_BT) micro->best_BT = e->best_BT + at, micro->loss_BT = e->loss_BT + at;
        if (!b->ids_BT && e->documents) micro->start_BT = micro->end_BT = micro_batch_bounds;
        if (!b->ids_BT) continue; /* measuring */
        micro->ids_BT = b->ids_BT + at;
        micro->labels_BT = b->labels_BT + at;
        micro->start_BT = e->documents ? b->start_BT + at : NULL;
        micro->end_BT = e->documents ? b->end_BT + at : NULL;
    }
    TRY(pipeline_run(&e->pipeline, e->micros, step));
    return STATUS_OK;
}

enum status evaluator_measure(struct evaluator *e, struct arena *step)
{
    TRY(forward(e, step));
    return STATUS_OK;
}

enum status batch_share(struct batch *b, const struct comm *peers)
{
    int32_t *const arrays[] = {b->ids_BT, b->labels_BT, b->start_BT, b->end_BT};
    double counts[] = {(double)b->valid, (double)b->bytes};
    if (peers->size == 1) return STATUS_OK;
    for (int i = 0; i < 4; i++) { /* numbers of four bytes */
        struct transfer t = {TRANSFER_broadcast, F32, (size_t)b->B * (size_t)b->T, .x = arrays[i]};
        TRY(comm_run(peers, &t));
    }
    if (peers->rank) counts[0] = counts[1] = 0;
    TRY(comm_all_reduce(peers, REDUCE_SUM, counts, 2));
    b->valid = (int64_t)counts[0], b->bytes = (int64_t)counts[1];
    return STATUS_OK;
}

/* The next batch of these ranks; *more: any of them, or of all the others, has rows. */
static enum status next_batch(struct evaluator *e, struct loader *loader, bool *more)
{
    int rows = 0;
    enum status st = loader ? loader_next(loader, &e->batch, &rows) : STATUS_OK;
    double state[2] = {rows > 0, signals_pending() > 0};
    TRY(comm_agree(e->peers, comm_agree(e->readers, st)));
    TRY(comm_all_reduce(e->peers, REDUCE_MAX, state, 2));
    TRY(comm_all_reduce(e->readers, REDUCE_MAX, state, 2));
    TRY(batch_share(&e->batch, e->peers));
    batch_cut(&e->batch, e->contexts, e->causal, &e->here);
    *more = state[0] > 0 && !(state[1] > 0);
    return STATUS_OK;
}

/* The counts of all ranks' tokens, which all of those that share rows know; of what they came to
 * each knows of its own tokens, and only the last of the stages. */
static enum status add_up(const struct evaluator *e, struct evaluation *v)
{
    double known[] = {v->loss_sum, (double)v->correct, v->mark_loss_sum, (double)v->marks};
    double counts[] = {(double)v->tokens, (double)v->bytes};
    TRY(comm_all_reduce(e->contexts, REDUCE_SUM, known, 4));
    TRY(comm_all_reduce(e->pipeline.group, REDUCE_SUM, known, 4));
    TRY(comm_all_reduce(e->readers, REDUCE_SUM, known, 4));
    TRY(comm_all_reduce(e->readers, REDUCE_SUM, counts, 2));
    v->loss_sum = known[0], v->correct = (int64_t)known[1];
    v->mark_loss_sum = known[2], v->marks = (int64_t)known[3];
    v->tokens = (int64_t)counts[0], v->bytes = (int64_t)counts[1];
    return STATUS_OK;
}

enum status evaluator_run(struct evaluator *e, struct loader *loader, int64_t batches,
                          struct arena *step, struct evaluation *out)
{
    *out = (struct evaluation){0};
    double unknown = 0; /* rows whose bytes are not known */
    while (out->batches != batches) {
        bool more;
        TRY(next_batch(e, loader, &more));
        if (!more) break;
        TRY(forward(e, step));
        TRY(queue_wait(e->pipeline.model->on));
        size_t tokens = (size_t)e->here.B * (size_t)e->here.T;
        for (size_t i = 0; i < tokens && pipeline_has_loss(&e->pipeline); i++) {
            out->loss_sum += (double)e->loss_BT[i];
            out->correct += e->best_BT[i] == e->here.labels_BT[i];
            if (!e->has_marks || e->here.labels_BT[i] != e->mark) continue;
            out->mark_loss_sum += (double)e->loss_BT[i];
            out->marks++;
        }
        out->tokens += e->batch.valid;
        out->bytes += e->batch.bytes;
        unknown += e->batch.valid && !e->batch.bytes;
        out->batches++;
    }
    TRY(add_up(e, out));
    TRY(comm_all_reduce(e->readers, REDUCE_MAX, &unknown, 1));
    if (unknown > 0) out->bytes = 0;
    return STATUS_OK;
}
