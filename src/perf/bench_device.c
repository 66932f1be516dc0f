// SPDX-License-Identifier: Apache-2.0
#include "perf/bench_device.h"

#include "base/clock.h"
#include "perf/measure.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_US = 4000, MOST_REPEATS = 4096, MOST_SIDE = 8192, WHOLE_SIDE = 64 };

struct timed {
    double seconds, rate, share; /* one call; of the ceiling */
    const struct call *call;
    struct op_work work;
};

/* --- one operation ------------------------------------------------------------------------- */

/* What op_fill would fill it with: that repeats itself, so the device copies the most of it. */
static enum status fill(const struct op_buffer *b, void *at, struct queue *queue)
{
    struct op_buffer first = *b;
    size_t each = dtype_bytes(b->dtype), bytes = b->count * each;
    if (first.count > OP_FILL_REPEATS) first.count = OP_FILL_REPEATS;
    void *host = heap(first.count * each);
    op_fill(&first, host);
    enum status st = queue_copy(queue, at, host, first.count * each);
    free(host);
    TRY(st);
    for (size_t done = first.count * each, n; done < bytes; done += n) {
        n = done < bytes - done ? done : bytes - done;
        TRY(queue_copy(queue, (char *)at + done, at, n));
    }
    return STATUS_OK;
}

/* Operands where the device's kernels find them; those of a measuring arena are NULL. */
static enum status take_operands(const struct op_work *w, struct arena *own, void **buffers,
                                 struct queue *queue)
{
    for (int i = 0; i < w->num_buffers; i++) {
        const struct op_buffer *b = &w->buffers[i];
        buffers[i] = b->content == CONTENT_FIRST && i ? buffers[0] : NULL;
        if (b->content == CONTENT_FIRST || b->content == CONTENT_NONE) continue;
        buffers[i] = arena_alloc(own, b->count, dtype_bytes(b->dtype));
        if (buffers[i]) TRY(fill(b, buffers[i], queue));
    }
    return STATUS_OK;
}

static enum status repeat(const struct op_call *call, const struct machine *m, void *const *buffers,
                          int times, double *seconds)
{
    double begin = clock_monotonic_s();
    for (int i = 0; i < times; i++) TRY(op_run(call, m->ops, buffers, m->queue));
    TRY(queue_wait(m->queue));
    *seconds = clock_monotonic_s() - begin;
    return STATUS_OK;
}

static enum status time_repeats(const struct op_call *call, const struct machine *m,
                                void *const *buffers, int rounds, double *seconds)
{
    int times = 1;
    double took, *all = heap((size_t)rounds * sizeof *all);
    enum status st = STATUS_OK;
    TRY_OUT(repeat(call, m, buffers, 1, &took)); /* the first is not counted */
    for (;; times *= 2) {
        TRY_OUT(repeat(call, m, buffers, times, &took));
        if (took * 1e6 >= LEAST_US || times >= MOST_REPEATS) break;
    }
    for (int i = 0; i < rounds; i++) {
        TRY_OUT(repeat(call, m, buffers, times, &took));
        all[i] = took / times;
    }
    *seconds = median(all, rounds);
out:
    free(all);
    return st;
}

static enum status time_call(const struct op_call *call, const struct machine *m, int rounds,
                             double *seconds)
{
    struct op_work w;
    struct arena own = {0};
    struct queue *queue = m->queue;
    void *buffers[OP_BUFFERS] = {0};
    enum status st = STATUS_OK;
    op_work(call, &w);
    TRY_OUT(take_operands(&w, &own, buffers, queue));
    arena_release(&queue->scratch);
    queue->sizing = true;
    st = op_run(call, m->ops, buffers, queue);
    queue->sizing = false;
    TRY_OUT(st);
    size_t scratch = queue->scratch.peak, bytes = own.used;
    TRY_OUT(arena_init(&queue->scratch, scratch, queue_device_allocator(queue)));
    TRY_OUT(arena_init(&own, bytes, queue_device_allocator(queue)));
    TRY_OUT(take_operands(&w, &own, buffers, queue));
    TRY_OUT(time_repeats(call, m, buffers, rounds, seconds));
out:
    arena_release(&queue->scratch);
    arena_release(&own);
    return st;
}

/* --- ceilings ------------------------------------------------------------------------------ */

enum status device_ceilings_find(struct device_ceilings *c, const struct machine *m, size_t bytes,
                                 int rounds)
{
    double seconds, elements = (double)bytes / 6; /* three matrices of bf16 */
    int side = (int)fmin(sqrt(elements), MOST_SIDE) / WHOLE_SIDE * WHOLE_SIDE;
    c->side = side > WHOLE_SIDE ? side : WHOLE_SIDE;
    for (enum dtype d = 0; d < DTYPE_COUNT; d++) {
        struct op_call product = {OP_linear_forward, {.linear_forward = {.dtype = d}}};
        struct linear *l = &product.what.linear_forward;
        l->N = l->D = l->F = c->side;
        TRY(time_call(&product, m, rounds, &seconds));
        c->flops[d] = 2 * pow(c->side, 3) / seconds;
    }
    struct op_call copy = {OP_cast, {.cast = {.n = bytes / 4, .from = BF16, .to = BF16}}};
    TRY(time_call(&copy, m, rounds, &seconds));
    c->copy = 4 * (double)copy.what.cast.n / seconds;
    return STATUS_OK;
}

static enum status time_operations(const struct device_bench *b, const struct device_ceilings *c,
                                   struct timed *all)
{
    for (size_t i = 0; i < b->calls->count; i++) {
        struct timed *t = &all[i];
        t->call = &b->calls->calls[i];
        op_work(&t->call->call, &t->work);
        TRY(time_call(&t->call->call, b->machine, b->rounds, &t->seconds));
        bool product = t->work.bound == BOUND_PEAK;
        t->rate = (product ? t->work.flops : t->work.bytes) / t->seconds;
        t->share = t->rate / (product ? c->flops[t->work.buffers[0].dtype] : c->copy);
    }
    return STATUS_OK;
}

/* --- steps --------------------------------------------------------------------------------- */

struct steps {
    double *seconds; /* of each; owned */
    double median, tokens, flops;
    size_t memory; /* bytes in use while they run */
};

static enum status time_steps(const struct device_bench *b, struct steps *s)
{
    struct trainer t;
    struct step_result result = {0};
    enum status st = STATUS_OK;
    size_t all;
    struct queue *queue = b->machine->queue;
    TRY(trainer_open(&t, b->config, b->shape, b->machine));
    batch_fill_random(&t.batch, b->shape->V);
    uint64_t seed = (uint64_t)b->config->debug.seed;
    TRY_OUT(trainer_init_weights(&t, seed));
    TRY_OUT(trainer_sync_weights(&t));
    for (int i = -1; i < b->rounds; i++) {
        double begin = clock_monotonic_s();
        TRY_OUT(trainer_train_batch(&t, &result));
        TRY_OUT(queue_wait(queue));
        if (i >= 0) s->seconds[i] = clock_monotonic_s() - begin;
        if (result.skipped) FAIL_OUT(DIVERGED, "a step on random ids has loss %g", result.loss);
    }
    TRY_OUT(queue_memory_info(queue, &all, &s->memory));
    s->tokens = (double)t.batch.B * t.batch.T;
    s->flops = model_flops_per_token(b->shape, t.batch.T) * s->tokens;
out:
    trainer_close(&t);
    return st;
}

/* --- telling ------------------------------------------------------------------------------- */

static const char *const bounds[] = {
    [BOUND_PEAK] = "gemm", [BOUND_READ] = "copy", [BOUND_COPY] = "copy", [BOUND_UPDATE] = "copy"};

static int by_step_time(const void *a, const void *b)
{
    const struct timed *s = a, *t = b;
    double x = s->seconds * s->call->per_step, y = t->seconds * t->call->per_step;
    return (x < y) - (x > y);
}

static double peak_of(const struct device_bench *b, const struct device_ceilings *c)
{
    return b->machine->peak_flops > 0 ? b->machine->peak_flops : c->flops[BF16];
}

static void tell_ceilings(const struct device_ceilings *c, struct text *table, struct text *json)
{
    text_addf(table,
              "ceilings\n  product of %d x %d, bf16  %10.1f TFLOP/s\n  the same, f32%*s"
              "%10.1f TFLOP/s\n  copy, read and written  %10.1f GB/s\n\n",
              c->side, c->side, c->flops[BF16] / 1e12, 10, "", c->flops[F32] / 1e12, c->copy / 1e9);
    text_addf(json,
              "\"ceilings\": {\"side\": %d, \"bf16\": %.6g, \"f32\": %.6g, \"copy\": %.6g},\n ",
              c->side, c->flops[BF16], c->flops[F32], c->copy);
}

static void tell_operations(const struct device_bench *b, const struct timed *all,
                            const struct steps *s, struct text *table, struct text *json)
{
    text_adds(table, "operations, each alone\n");
    text_adds(json, "\"operations\": [");
    for (size_t i = 0; i < b->calls->count; i++) {
        const struct timed *t = &all[i];
        bool product = t->work.bound == BOUND_PEAK;
        const char *name = op_name(t->call->call.op);
        double in_step = t->seconds * t->call->per_step;
        text_addf(table, "  %-22s %-27s %9.1f us %8.1f %s %5.1f%% of %s  %4d x %8.2f ms %5.1f%%\n",
                  name, t->call->sizes, t->seconds * 1e6, t->rate / (product ? 1e12 : 1e9),
                  product ? "TFLOP/s" : "GB/s   ", 100 * t->share, bounds[t->work.bound],
                  t->call->per_step, in_step * 1e3, 100 * in_step / s->median);
        text_addf(json,
                  "%s\n  {\"name\": \"%s\", \"sizes\": \"%s\", \"calls\": %d, \"flops\": %.9g, "
                  "\"bytes\": %.9g, ",
                  i ? "," : "", name, t->call->sizes, t->call->per_step, t->work.flops,
                  t->work.bytes);
        text_addf(json, "\"seconds\": %.6g, \"rate\": %.6g, \"ceiling\": \"%s\", \"share\": %.5g}",
                  t->seconds, t->rate, bounds[t->work.bound], t->share);
    }
    text_adds(json, "],\n ");
}

static void tell_step(const struct device_bench *b, const struct device_ceilings *c,
                      const struct timed *all, const struct steps *s, struct text *table,
                      struct text *json)
{
    double alone = 0, peak = peak_of(b, c), mfu = s->flops / s->median / peak;
    double causal = model_causal_flops_per_token(b->shape, (int)b->config->training.seq_len);
    for (size_t i = 0; i < b->calls->count; i++) alone += all[i].seconds * all[i].call->per_step;
    causal *= s->tokens / s->median;
    text_addf(table,
              "\nstep  %.4g s (median; its operations, each alone, add up to %.4g s), "
              "%.0f tokens/s\nMFU   %.1f%% of %.1f TFLOP/s, %s; %.1f%% where causal attention "
              "counts half\nmemory in use  %.2f GiB\n",
              s->median, alone, s->tokens / s->median, 100 * mfu, peak / 1e12,
              b->machine->peak_flops > 0 ? "the device's peak" : "the product above",
              100 * causal / peak, (double)s->memory / (1 << 30));
    text_adds(json, "\"step\": {\"seconds\": [");
    for (int i = 0; i < b->rounds; i++) text_addf(json, "%s%.6g", i ? ", " : "", s->seconds[i]);
    text_addf(json,
              "], \"median\": %.6g, \"alone\": %.6g, \"tokens\": %.0f, \"tokens_per_second\": "
              "%.6g, \"flops\": %.9g, \"peak_flops\": %.6g, ",
              s->median, alone, s->tokens, s->tokens / s->median, s->flops, peak);
    text_addf(json, "\"mfu\": %.5g, \"mfu_causal\": %.5g, \"memory_bytes\": %zu}", mfu,
              causal / peak, s->memory);
}

enum status bench_device(const struct device_bench *b, struct text *table, struct text *json)
{
    struct device_ceilings c;
    struct steps s = {.seconds = heap((size_t)b->rounds * sizeof *s.seconds)};
    struct timed *all = heap(b->calls->count * sizeof *all);
    enum status st = STATUS_OK;
    TRY_OUT(device_ceilings_find(&c, b->machine, b->bytes, b->rounds));
    TRY_OUT(time_operations(b, &c, all));
    TRY_OUT(time_steps(b, &s));
    s.median = median(s.seconds, b->rounds);
    qsort(all, b->calls->count, sizeof *all, by_step_time);
    tell_ceilings(&c, table, json);
    tell_operations(b, all, &s, table, json);
    tell_step(b, &c, all, &s, table, json);
out:
    free(s.seconds);
    free(all);
    return st;
}
