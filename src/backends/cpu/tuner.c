// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/tuner.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum {
    SECONDS = 10, /* in all */
    LEAST_ROUNDS = 3,
    MOST_ROUNDS = 7, /* of them, so many as take no longer than EACH */
};
static const double EACH = 0.4;        /* seconds of a product */
static const double GAIN = 0.97;       /* of the usual way's time: a smaller gain may be chance */
static const double FIRST_RATE = 1e10; /* FLOP/s of a thread, until a product was timed */

struct tuner {
    struct tuning file;
    char *backend, *processor;
    int threads;
    struct choice {
        struct product_shape shape;
        const struct way *way;
    } * choices;
    size_t count;
    int timed, found, left; /* products, since it was told */
    double seconds;         /* that timing took since it was opened */
    double rate;            /* FLOP/s of the last product that was timed */
    double (*clock)(void);
    bool idle;
};

static char *copy(const char *string) { return heap_string(string, strlen(string)); }

struct tuner *tuner_open(const char *path, const struct tuned_device *d, double (*clock)(void))
{
    struct tuner *t = heap(sizeof *t);
    tuning_open(&t->file, path);
    t->backend = copy(d->backend), t->processor = copy(d->processor), t->threads = d->threads;
    t->rate = FIRST_RATE * d->threads, t->clock = clock;
    return t;
}

/* What was done, in a line, and to the file. */
static void tell(struct tuner *t)
{
    if (t->timed + t->found + t->left == 0) return;
    bool kept = !tuning_save(&t->file);
    log_line(LOG_INFO, "device.tune_gemm: %d product%s timed in %.1f s, %d found in %s%s", t->timed,
             t->timed == 1 ? "" : "s", t->seconds, t->found, t->file.path,
             t->timed && kept ? ", which keeps the fastest ways" : "");
    if (t->left) log_line(LOG_INFO, "device.tune_gemm: %d more are left to later runs", t->left);
    if (!kept) log_line(LOG_WARN, "device.tune_gemm: not kept: %s", status_message());
    t->timed = t->found = t->left = 0;
}

void tuner_close(struct tuner *t)
{
    if (!t) return;
    tell(t);
    tuning_close(&t->file);
    free(t->backend), free(t->processor), free(t->choices);
    free(t);
}

void tuner_use(struct tuner *t, bool use) { t->idle = !use; }

/* The same product for a clock: a scale, if any, is not part of it. */
static bool same(const struct product_shape *x, const struct product_shape *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->dtype == y->dtype &&
           x->out == y->out && x->transpose_a == y->transpose_a &&
           x->transpose_b == y->transpose_b && x->accumulate == y->accumulate;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct trial {
    const struct product_shape *s;
    way_call *multiply;
    double (*clock)(void);
    struct queue on; /* its own */
    struct arena memory;
    bf16 *a, *b;
    void *c;
};

/* Operands of numbers that are like any others to a processor. */
static void take_operands(struct trial *t)
{
    size_t M = (size_t)t->s->M, N = (size_t)t->s->N, K = (size_t)t->s->K;
    t->a = arena_take(&t->memory, M * K, sizeof *t->a);
    t->b = arena_take(&t->memory, K * N, sizeof *t->b);
    t->c = arena_take(&t->memory, M * N, dtype_bytes(t->s->out));
    if (!t->c) return;
    for (size_t i = 0; i < M * K; i++) t->a[i] = (bf16)(0x3F80 + i % 127);
    for (size_t i = 0; i < K * N; i++) t->b[i] = (bf16)(0xBF80 + i % 113);
}

static enum status time_way(struct trial *t, const struct way *way, double *seconds)
{
    const struct product_io io = {t->a, t->b, t->c, t->c};
    double begin = t->clock();
    TRY(t->multiply(t->s, way, &io, &t->on));
    *seconds = t->clock() - begin;
    return STATUS_OK;
}

enum { WAYS = 16 };

/* Round by round the usual way and these; a way's ratio is the median of its time over the usual
 * one's. */
static enum status time_rounds(struct trial *t, int rounds, const struct way *const *ways,
                               int count, double *medians)
{
    double ratios[WAYS][MOST_ROUNDS], usual, seconds;
    for (int r = 0; r < rounds; r++) {
        TRY(time_way(t, way_at(0), &usual));
        for (int i = 0; i < count; i++) {
            TRY(time_way(t, ways[i], &seconds));
            ratios[i][r] = seconds / usual;
        }
    }
    for (int i = 0; i < count; i++) {
        qsort(ratios[i], (size_t)rounds, sizeof ratios[i][0], by_value);
        medians[i] = ratios[i][rounds / 2];
    }
    return STATUS_OK;
}

/* The one that seems the fastest meets the usual way once more: the best of several is often the
 * luckiest. */
static enum status find_fastest(struct trial *t, int rounds, const struct way **fastest)
{
    const struct way *ways[WAYS], *best = NULL;
    double medians[WAYS], least = GAIN;
    int count = 0;
    for (const struct way *w; (w = way_at(count + 1)); count++) {
        BUG_IF(count == WAYS);
        ways[count] = w;
    }
    TRY(time_rounds(t, rounds, ways, count, medians));
    for (int i = 0; i < count; i++)
        if (medians[i] < least) best = ways[i], least = medians[i];
    if (best) TRY(time_rounds(t, rounds, &best, 1, medians));
    *fastest = best && medians[0] < GAIN ? best : way_at(0);
    return STATUS_OK;
}

/* *fastest NULL: there is no time left.  MEMORY: its operands. */
static enum status time_ways(struct tuner *tuner, const struct product_shape *s, way_call *multiply,
                             const struct way **fastest)
{
    struct trial t = {.s = s, .multiply = multiply, .clock = tuner->clock};
    double left = SECONDS - tuner->seconds, *rate = &tuner->rate;
    double flops = 2.0 * s->M * s->N * s->K, seconds;
    int ways = 0;
    enum status st = STATUS_OK;
    *fastest = NULL;
    while (way_at(ways)) ways++;
    ways += 2; /* the fastest and the usual one once more */
    if (flops / *rate * (ways * LEAST_ROUNDS + 1) > left) return STATUS_OK;
    t.on.num_threads = tuner->threads, t.on.measuring = true;
    take_operands(&t);
    TRY_OUT(time_way(&t, way_at(0), &seconds));
    size_t scratch = t.on.scratch.peak, bytes = t.memory.used;
    t.on.measuring = false;
    TRY_OUT(arena_init(&t.on.scratch, scratch, NULL));
    TRY_OUT(arena_init(&t.memory, bytes, NULL));
    take_operands(&t);
    TRY_OUT(time_way(&t, way_at(0), &seconds)); /* for the caches and the clock */
    TRY_OUT(time_way(&t, way_at(0), &seconds));
    *rate = flops / seconds;
    int rounds = seconds * ways * MOST_ROUNDS > EACH ? (int)(EACH / (seconds * ways)) : MOST_ROUNDS;
    if (rounds < LEAST_ROUNDS) rounds = LEAST_ROUNDS;
    if (seconds * ways * rounds < left) TRY_OUT(find_fastest(&t, rounds, fastest));
out:
    arena_release(&t.on.scratch);
    arena_release(&t.memory);
    return st;
}

static const struct way *choose(struct tuner *t, const struct product_shape *s, way_call *multiply)
{
    struct tuned_device device = {t->backend, t->processor, t->threads};
    struct tuned_product p = {.M = s->M,
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
    const struct way *way = name ? way_named(name) : NULL;
    if (way) {
        t->found++;
    } else if (!time_ways(t, s, multiply, &way) && way) {
        tuning_put(&t->file, key.data, way->name);
        t->timed++;
        t->seconds += t->clock() - begin;
    } else {
        t->left++;
        t->seconds += t->clock() - begin;
    }
    text_release(&key);
    return way ? way : way_at(0);
}

const struct way *tuner_way(struct tuner *t, const struct product_shape *s, way_call *multiply,
                            const struct queue *on)
{
    if (!t || t->idle) return way_at(0);
    if (!on->measuring) tell(t);
    for (size_t i = 0; i < t->count; i++)
        if (same(&t->choices[i].shape, s)) return t->choices[i].way;
    if (!on->measuring) return way_at(0);
    const struct way *way = choose(t, s, multiply);
    t->choices = heap_grow(t->choices, t->count + 1, sizeof *t->choices);
    t->choices[t->count++] = (struct choice){*s, way};
    return way;
}
