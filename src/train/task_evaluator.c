// SPDX-License-Identifier: Apache-2.0
#include "train/task_evaluator.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "ops/cross_entropy.h"

#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 32, MAX_LENGTHS = 64 };

struct scoring {
    const struct evaluator *evaluator;
    const struct task *task;
    int32_t mask;
    struct arena *step;
    struct task_scores *scores;
};

/* A row of the model. */
struct task_row {
    size_t request;
    int tokens, masked_at; /* masked_at: of a masked model, in the request */
};

/* Lengths of rows, in descending order: the evaluator's times 1, 3/4, 1/2, 3/8, ..., where the
 * ranks can divide them. */
static int find_lengths(const struct evaluator *e, int lengths[MAX_LENGTHS])
{
    int count = 1, unit = 2 * e->peers->size;
    lengths[0] = e->batch.T;
    for (int T = e->batch.T; T >= SHORTEST && count + 2 <= MAX_LENGTHS; T /= 2) {
        if (T < lengths[0] && T % unit == 0) lengths[count++] = T;
        if (T % 4 == 0 && T / 4 * 3 % unit == 0) lengths[count++] = T / 4 * 3;
        if (T % 2) break;
    }
    return count;
}

/* The evaluator for rows of fewer tokens, in the same buffers. */
static struct evaluator shorten(const struct evaluator *e, int T)
{
    struct evaluator s = *e;
    s.batch.T = T;
    s.local.T = T / e->contexts->size;
    s.documents |= !e->causal; /* a masked model's rows must not attend to padding */
    return s;
}

enum status task_evaluator_size(const struct evaluator *e, struct arena *step)
{
    int lengths[MAX_LENGTHS], count = find_lengths(e, lengths);
    for (int i = 0; i < count; i++) {
        struct evaluator s = shorten(e, lengths[i]);
        TRY(evaluator_size(&s, step));
    }
    return STATUS_OK;
}

static int compare_rows(const void *a, const void *b)
{
    const struct task_row *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens < y->tokens ? 1 : -1;
    if (x->request != y->request) return x->request < y->request ? -1 : 1;
    return (x->masked_at > y->masked_at) - (x->masked_at < y->masked_at);
}

/* All rows of a task, the longest first; heap. */
static struct task_row *sort_rows(const struct task *t, size_t *count)
{
    size_t total = 0;
    for (size_t i = 0; i < t->num_requests; i++)
        total += t->masked ? (size_t)t->requests[i].num_scored : 1;
    struct task_row *rows = heap((total + 1) * sizeof *rows), *row = rows;
    for (size_t i = 0; i < t->num_requests; i++) {
        const struct task_request *r = &t->requests[i];
        int tokens = task_row_tokens(t, r), first = r->num_ids - r->num_scored;
        if (!t->masked) *row++ = (struct task_row){i, tokens, -1};
        for (int at = first; t->masked && at < r->num_ids; at++)
            *row++ = (struct task_row){i, tokens, at};
    }
    qsort(rows, total, sizeof *rows, compare_rows);
    *count = total;
    return rows;
}

static void fill_row(struct batch *b, int i, const struct scoring *g, const struct task_row *row)
{
    const struct task *t = g->task;
    const struct task_request *r = &t->requests[row->request];
    const int32_t *ids = t->ids.ids + r->first;
    size_t first = (size_t)i * (size_t)b->T;
    int n = row->tokens;
    batch_pad_row(b, i);
    for (int at = 0; at < b->T; at++) {
        b->start_BT[first + (size_t)at] = at < n ? 0 : n;
        b->end_BT[first + (size_t)at] = at < n ? n : b->T;
    }
    memcpy(b->ids_BT + first, ids, (size_t)n * sizeof *ids);
    if (t->masked) {
        size_t at = first + (size_t)row->masked_at;
        b->ids_BT[at] = g->mask;
        b->labels_BT[at] = ids[row->masked_at];
        b->valid++;
        return;
    }
    for (int at = r->num_ids - r->num_scored; at < r->num_ids; at++, b->valid++)
        b->labels_BT[first + (size_t)at - 1] = ids[at];
}

static void add_scores(const struct evaluator *e, const struct task_row *rows, int num_rows,
                       struct task_scores *s)
{
    if (!pipeline_has_loss(&e->pipeline)) return;
    for (int i = 0; i < num_rows; i++)
        for (int at = 0; at < e->local.T; at++) {
            size_t token = (size_t)i * (size_t)e->local.T + (size_t)at;
            int32_t label = e->local.labels_BT[token];
            if (label == LABEL_IGNORED) continue;
            s->log_likelihoods[rows[i].request] -= (double)e->loss_BT[token];
            s->misses[rows[i].request] += e->best_BT[token] != label;
        }
}

/* Adds the scores of a group's ranks, each of which has the losses of different tokens. */
static enum status sum_over(const struct comm *c, const struct task *t, struct task_scores *s)
{
    enum { CHUNK = 4096 }; /* the ranks' chunks are gathered */
    for (size_t at = 0; at < t->num_requests && c->size > 1; at += CHUNK) {
        size_t left = t->num_requests - at, count = left < CHUNK ? left : CHUNK;
        TRY(comm_all_reduce(c, REDUCE_SUM, s->log_likelihoods + at, count));
        TRY(comm_all_reduce_int64(c, REDUCE_SUM, s->misses + at, count));
    }
    return STATUS_OK;
}

static enum status agree_to_stop(const struct evaluator *e, bool *stop)
{
    int64_t pending = signals_pending() > 0;
    TRY(comm_all_reduce_int64(e->peers, REDUCE_MAX, &pending, 1));
    TRY(comm_all_reduce_int64(e->readers, REDUCE_MAX, &pending, 1));
    *stop = pending > 0;
    return STATUS_OK;
}

/* Computes a batch; num_rows 0: padding alone, so that this rank takes part in collectives. */
static enum status run_batch(const struct scoring *g, const struct task_row *rows, int num_rows)
{
    const struct evaluator *e = g->evaluator;
    int lengths[MAX_LENGTHS], length = find_lengths(e, lengths) - 1;
    int needed = num_rows ? rows[0].tokens : 1;
    while (lengths[length] < needed) {
        BUG_IF(!length);
        length--;
    }
    struct evaluator fitting = shorten(e, lengths[length]);
    fitting.batch.valid = 0;
    for (int i = 0; i < fitting.batch.B; i++)
        if (i < num_rows)
            fill_row(&fitting.batch, i, g, &rows[i]);
        else
            batch_pad_row(&fitting.batch, i);
    TRY(evaluator_forward(&fitting, g->step));
    add_scores(&fitting, rows, num_rows, g->scores);
    return STATUS_OK;
}

enum status task_evaluator_run(const struct evaluator *e, const struct task *t, int32_t mask,
                               struct arena *step, struct task_scores *s)
{
    size_t num_rows, B = (size_t)e->batch.B, readers = (size_t)e->readers->size;
    struct task_row *rows = sort_rows(t, &num_rows);
    struct scoring g = {e, t, mask, step, s};
    bool is_main = !e->readers->rank && !e->peers->rank;
    if (is_main) progress_begin(t->name, PROGRESS_ROWS, (double)num_rows);
    enum status st = STATUS_OK;
    memset(s->log_likelihoods, 0, t->num_requests * sizeof *s->log_likelihoods);
    memset(s->misses, 0, t->num_requests * sizeof *s->misses);
    s->stopped = false;
    for (size_t round = 0; round < num_rows; round += B * readers) {
        size_t first = round + B * (size_t)e->readers->rank;
        size_t left = first < num_rows ? num_rows - first : 0;
        TRY_OUT(agree_to_stop(e, &s->stopped));
        if (s->stopped) goto out;
        TRY_OUT(run_batch(&g, rows + (left ? first : 0), (int)(left < B ? left : B)));
        if (is_main) progress_add((double)(B * readers));
    }
    TRY_OUT(sum_over(e->contexts, t, s));
    TRY_OUT(sum_over(e->pipeline.group, t, s));
    TRY_OUT(sum_over(e->readers, t, s));
out:
    if (is_main) progress_end();
    free(rows);
    return st;
}
