// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/tuner.h"

#include "base/log.h"
#include "base/median.h"

#include <stdlib.h>

enum {
    BUDGET_S = 10, /* for all shapes */
    MIN_ROUNDS = 3,
    MAX_ROUNDS = 7, /* fewer if they would exceed SHAPE_BUDGET_S */
};
static const double SHAPE_BUDGET_S = 0.4; /* for one shape */
static const double MAX_RATIO = 0.97;     /* of the default's time: a smaller gain may be noise */
static const double FIRST_RATE = 1e10; /* assumed FLOP/s per thread until a GEMM has been timed */

struct tuner {
    struct tuning file;
    char *backend, *processor;
    int threads;
    struct choice {
        struct gemm_shape shape;
        const struct gemm_blocking *blocking;
    } * choices;
    size_t count;
    int timed, found, deferred; /* shapes since the last report */
    double seconds;             /* spent on tuning since tuner_open */
    double rate;                /* FLOP/s of the last GEMM that was timed */
    double (*clock)(void);
    bool disabled;
};

struct tuner *tuner_open(const char *path, const struct tuned_device *d, double (*clock)(void))
{
    struct tuner *t = heap(sizeof *t);
    tuning_open(&t->file, path);
    t->backend = heap_strdup(d->backend), t->processor = heap_strdup(d->processor),
    t->threads = d->threads;
    t->rate = FIRST_RATE * d->threads, t->clock = clock;
    return t;
}

/* Logs one summary and saves the file. */
static void report_and_save(struct tuner *t)
{
    if (t->timed + t->found + t->deferred == 0) return;
    bool saved = !tuning_save(&t->file);
    log_line(LOG_INFO, "device.tune_gemm: timed %d GEMM shape%s in %.1f s, found %d in %s%s",
             t->timed, t->timed == 1 ? "" : "s", t->seconds, t->found, t->file.path,
             t->timed && saved ? "; saved the fastest blockings there" : "");
    if (t->deferred)
        log_line(LOG_INFO, "device.tune_gemm: time budget spent; %d more left to later runs",
                 t->deferred);
    if (!saved)
        log_line(LOG_WARN, "device.tune_gemm: cannot save the results: %s", status_message());
    t->timed = t->found = t->deferred = 0;
}

void tuner_close(struct tuner *t)
{
    if (!t) return;
    report_and_save(t);
    tuning_close(&t->file);
    free(t->backend), free(t->processor), free(t->choices);
    free(t);
}

void tuner_use(struct tuner *t, bool use) { t->disabled = !use; }

/* Shapes that take the same time: the scale does not matter. */
static bool same_shape(const struct gemm_shape *x, const struct gemm_shape *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->dtype == y->dtype &&
           x->out == y->out && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate;
}

struct gemm_trial {
    const struct gemm_shape *s;
    gemm_call *multiply;
    double (*clock)(void);
    struct queue queue; /* of the trial alone */
    struct arena memory;
    bf16 *a, *b;
    void *c;
};

/* Operands with ordinary values: zeros or subnormals would change the speed. */
static void alloc_operands(struct gemm_trial *t)
{
    size_t M = (size_t)t->s->M, N = (size_t)t->s->N, K = (size_t)t->s->K;
    t->a = arena_alloc(&t->memory, M * K, sizeof *t->a);
    t->b = arena_alloc(&t->memory, K * N, sizeof *t->b);
    t->c = arena_alloc(&t->memory, M * N, dtype_bytes(t->s->out));
    if (!t->c) return;
    for (size_t i = 0; i < M * K; i++) t->a[i] = (bf16)(0x3F80 + i % 127);
    for (size_t i = 0; i < K * N; i++) t->b[i] = (bf16)(0xBF80 + i % 113);
}

static enum status time_blocking(struct gemm_trial *t, const struct gemm_blocking *blocking,
                                 double *seconds)
{
    const struct gemm_buffers io = {t->a, t->b, t->c, t->c};
    double begin = t->clock();
    TRY(t->multiply(t->s, blocking, &io, &t->queue));
    *seconds = t->clock() - begin;
    return STATUS_OK;
}

enum { MAX_BLOCKINGS = 16 };

/* Times the default and the given blockings in turn; medians[i] is the median ratio of a blocking's
 * time to the default's. */
static enum status time_rounds(struct gemm_trial *t, int rounds,
                               const struct gemm_blocking *const *blockings, int count,
                               double *medians)
{
    double ratios[MAX_BLOCKINGS][MAX_ROUNDS], baseline, seconds;
    for (int r = 0; r < rounds; r++) {
        TRY(time_blocking(t, gemm_blocking_at(0), &baseline));
        for (int i = 0; i < count; i++) {
            TRY(time_blocking(t, blockings[i], &seconds));
            ratios[i][r] = seconds / baseline;
        }
    }
    for (int i = 0; i < count; i++) medians[i] = median(ratios[i], rounds);
    return STATUS_OK;
}

/* Times the winner against the default a second time: the best of several is often a lucky one. */
static enum status pick_fastest(struct gemm_trial *t, int rounds,
                                const struct gemm_blocking **fastest)
{
    const struct gemm_blocking *blockings[MAX_BLOCKINGS], *best = NULL;
    double medians[MAX_BLOCKINGS], least_ratio = MAX_RATIO;
    int count = 0;
    for (const struct gemm_blocking *w; (w = gemm_blocking_at(count + 1)); count++) {
        BUG_IF(count == MAX_BLOCKINGS);
        blockings[count] = w;
    }
    TRY(time_rounds(t, rounds, blockings, count, medians));
    for (int i = 0; i < count; i++)
        if (medians[i] < least_ratio) best = blockings[i], least_ratio = medians[i];
    if (best) TRY(time_rounds(t, rounds, &best, 1, medians));
    *fastest = best && medians[0] < MAX_RATIO ? best : gemm_blocking_at(0);
    return STATUS_OK;
}

/* *fastest is NULL if the time budget is spent.  MEMORY: cannot allocate the operands. */
static enum status tune_shape(struct tuner *tuner, const struct gemm_shape *s, gemm_call *multiply,
                              const struct gemm_blocking **fastest)
{
    struct gemm_trial t = {.s = s, .multiply = multiply, .clock = tuner->clock};
    double remaining = BUDGET_S - tuner->seconds, *rate = &tuner->rate;
    double flops = 2.0 * s->M * s->N * s->K, seconds;
    int blockings = 0;
    enum status st = STATUS_OK;
    *fastest = NULL;
    while (gemm_blocking_at(blockings)) blockings++;
    blockings += 2; /* the winner and the default a second time */
    if (flops / *rate * (blockings * MIN_ROUNDS + 1) > remaining) return STATUS_OK;
    t.queue.num_threads = tuner->threads, t.queue.sizing = true;
    alloc_operands(&t);
    TRY_OUT(time_blocking(&t, gemm_blocking_at(0), &seconds));
    size_t scratch = t.queue.scratch.peak, bytes = t.memory.used;
    t.queue.sizing = false;
    TRY_OUT(arena_init(&t.queue.scratch, scratch, NULL));
    TRY_OUT(arena_init(&t.memory, bytes, NULL));
    alloc_operands(&t);
    TRY_OUT(time_blocking(&t, gemm_blocking_at(0), &seconds)); /* warms up caches and clock */
    TRY_OUT(time_blocking(&t, gemm_blocking_at(0), &seconds));
    *rate = flops / seconds;
    int rounds = seconds * blockings * MAX_ROUNDS > SHAPE_BUDGET_S
                     ? (int)(SHAPE_BUDGET_S / (seconds * blockings))
                     : MAX_ROUNDS;
    if (rounds < MIN_ROUNDS) rounds = MIN_ROUNDS;
    if (seconds * blockings * rounds < remaining) TRY_OUT(pick_fastest(&t, rounds, fastest));
out:
    arena_release(&t.queue.scratch);
    arena_release(&t.memory);
    return st;
}

static const struct gemm_blocking *choose_blocking(struct tuner *t, const struct gemm_shape *s,
                                                   gemm_call *multiply)
{
    struct tuned_device device = {t->backend, t->processor, t->threads};
    struct tuned_matmul p = {.M = s->M,
                             .N = s->N,
                             .K = s->K,
                             .transpose_a = s->transpose_a,
                             .transpose_b = s->transpose_b,
                             .accumulate = s->accumulate,
                             .dtype = s->dtype,
                             .out = s->out};
    struct text key = {0};
    double begin = t->clock();
    tuning_key(&key, &device, &p);
    const char *name = tuning_find(&t->file, key.data);
    const struct gemm_blocking *blocking = name ? gemm_blocking_named(name) : NULL;
    if (blocking) {
        t->found++;
    } else if (!tune_shape(t, s, multiply, &blocking) && blocking) {
        tuning_set(&t->file, key.data, blocking->name);
        t->timed++;
        t->seconds += t->clock() - begin;
    } else {
        t->deferred++;
        t->seconds += t->clock() - begin;
    }
    text_release(&key);
    return blocking ? blocking : gemm_blocking_at(0);
}

const struct gemm_blocking *tuner_blocking(struct tuner *t, const struct gemm_shape *s,
                                           gemm_call *multiply, const struct queue *queue)
{
    if (!t || t->disabled) return gemm_blocking_at(0);
    if (!queue->sizing) report_and_save(t);
    for (size_t i = 0; i < t->count; i++)
        if (same_shape(&t->choices[i].shape, s)) return t->choices[i].blocking;
    if (!queue->sizing) return gemm_blocking_at(0);
    const struct gemm_blocking *blocking = choose_blocking(t, s, multiply);
    t->choices = heap_grow(t->choices, t->count + 1, sizeof *t->choices);
    t->choices[t->count++] = (struct choice){*s, blocking};
    return blocking;
}
