// SPDX-License-Identifier: Apache-2.0
#include "perf/device_bench.h"

#include "base/clock.h"
#include "base/median.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

enum { MIN_ROUND_US = 4000, MAX_REPEATS = 4096, MAX_SIDE = 8192, SIDE_MULTIPLE = 64 };

struct timed_call {
    double seconds, rate; /* of one call */
    double share;         /* of the ceiling */
    const struct step_call *call;
    struct op_work work;
};

/* Fills a device buffer as op_fill would.  The content is periodic, so one period comes from the
 * host and the device copies the rest. */
static enum status fill_buffer(const struct op_buffer *b, void *at, struct queue *queue)
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

/* Operands in device memory; NULL with a sizing arena. */
static enum status alloc_operands(const struct op_work *w, struct arena *own, void **buffers,
                                  struct queue *queue)
{
    for (int i = 0; i < w->num_buffers; i++) {
        const struct op_buffer *b = &w->buffers[i];
        buffers[i] = b->content == CONTENT_FIRST && i ? buffers[0] : NULL;
        if (b->content == CONTENT_FIRST || b->content == CONTENT_NONE) continue;
        buffers[i] = arena_alloc(own, b->count, dtype_bytes(b->dtype));
        if (buffers[i]) TRY(fill_buffer(b, buffers[i], queue));
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
    TRY_OUT(repeat(call, m, buffers, 1, &took)); /* warm-up */
    for (;; times *= 2) {
        TRY_OUT(repeat(call, m, buffers, times, &took));
        if (took * 1e6 >= MIN_ROUND_US || times >= MAX_REPEATS) break;
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
    TRY_OUT(alloc_operands(&w, &own, buffers, queue));
    arena_release(&queue->scratch);
    queue->sizing = true;
    st = op_run(call, m->ops, buffers, queue);
    queue->sizing = false;
    TRY_OUT(st);
    size_t scratch = queue->scratch.peak, bytes = own.used;
    TRY_OUT(arena_init(&queue->scratch, scratch, queue_device_allocator(queue)));
    TRY_OUT(arena_init(&own, bytes, queue_device_allocator(queue)));
    TRY_OUT(alloc_operands(&w, &own, buffers, queue));
    TRY_OUT(time_repeats(call, m, buffers, rounds, seconds));
out:
    arena_release(&queue->scratch);
    arena_release(&own);
    return st;
}

enum status device_bench_ceilings(struct device_ceilings *c, const struct machine *m, size_t bytes,
                                  int rounds)
{
    double seconds, elements = (double)bytes / 6; /* three matrices of bf16 */
    int side = (int)fmin(sqrt(elements), MAX_SIDE) / SIDE_MULTIPLE * SIDE_MULTIPLE;
    c->side = side > SIDE_MULTIPLE ? side : SIDE_MULTIPLE;
    for (enum dtype d = 0; d < DTYPE_COUNT; d++) {
        struct op_call gemm = {OP_linear_forward, {.linear_forward = {.dtype = d}}};
        struct linear *l = &gemm.what.linear_forward;
        l->N = l->D = l->F = c->side;
        TRY(time_call(&gemm, m, rounds, &seconds));
        c->flops[d] = 2 * pow(c->side, 3) / seconds;
    }
    struct op_call copy = {OP_cast, {.cast = {.n = bytes / 4, .from = BF16, .to = BF16}}};
    TRY(time_call(&copy, m, rounds, &seconds));
    c->copy = 4 * (double)copy.what.cast.n / seconds;
    return STATUS_OK;
}

static enum status time_operations(const struct device_bench *b, const struct device_ceilings *c,
                                   struct timed_call *all)
{
    for (size_t i = 0; i < b->calls->count; i++) {
        struct timed_call *t = &all[i];
        t->call = &b->calls->calls[i];
        op_work(&t->call->call, &t->work);
        TRY(time_call(&t->call->call, b->machine, b->rounds, &t->seconds));
        bool is_gemm = t->work.bound == BOUND_PEAK;
        t->rate = (is_gemm ? t->work.flops : t->work.bytes) / t->seconds;
        t->share = t->rate / (is_gemm ? c->flops[t->work.buffers[0].dtype] : c->copy);
    }
    return STATUS_OK;
}

struct timed_steps {
    double *seconds; /* of each step; owned */
    double alone;    /* sum of its calls, each timed alone */
    double median, tokens, flops;
    size_t memory; /* bytes of the device in use during a step */
};

static enum status time_steps(const struct device_bench *b, struct timed_steps *s)
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
        if (result.skipped)
            FAIL_OUT(DIVERGED, "a step on random token IDs was skipped: loss %g", result.loss);
    }
    TRY_OUT(queue_memory_info(queue, &all, &s->memory));
    s->tokens = (double)t.batch.B * t.batch.T;
    s->flops = model_flops_per_token(b->shape, t.batch.T) * s->tokens;
out:
    trainer_close(&t);
    return st;
}

static const char *const bounds[] = {
    [BOUND_PEAK] = "gemm", [BOUND_READ] = "copy", [BOUND_COPY] = "copy", [BOUND_UPDATE] = "copy"};

static int by_step_time(const void *a, const void *b)
{
    const struct timed_call *s = a, *t = b;
    double x = s->seconds * s->call->per_step, y = t->seconds * t->call->per_step;
    return (x < y) - (x > y);
}

static double peak_of(const struct device_bench *b, const struct device_ceilings *c)
{
    return b->machine->peak_flops > 0 ? b->machine->peak_flops : c->flops[BF16];
}

static void add_ceilings(const struct device_ceilings *c, struct text *table, struct json_writer *w)
{
    text_addf(table,
              "ceilings\n  GEMM of %d x %d, bf16   %10.1f TFLOP/s\n  the same in f32%*s"
              "%10.1f TFLOP/s\n  copy, read plus written %10.1f GB/s\n\n",
              c->side, c->side, c->flops[BF16] / 1e12, 9, "", c->flops[F32] / 1e12, c->copy / 1e9);
    json_newline(w, 1);
    json_begin_object(w, "ceilings", JSON_INLINE);
    json_write_int(w, "side", c->side);
    json_write_format(w, "bf16", "%.6g", c->flops[BF16]);
    json_write_format(w, "f32", "%.6g", c->flops[F32]);
    json_write_format(w, "copy", "%.6g", c->copy);
    json_end_object(w);
}

static void add_operations(const struct device_bench *b, const struct timed_call *all,
                           const struct timed_steps *s, struct text *table, struct json_writer *w)
{
    text_adds(table, "operations, each timed alone\n");
    json_newline(w, 1);
    json_begin_array(w, "operations", JSON_INLINE);
    for (size_t i = 0; i < b->calls->count; i++) {
        const struct timed_call *t = &all[i];
        bool is_gemm = t->work.bound == BOUND_PEAK;
        const char *name = op_name(t->call->call.op);
        double in_step = t->seconds * t->call->per_step;
        text_addf(table, "  %-22s %-27s %9.1f us %8.1f %s %5.1f%% of %s  %4d x %8.2f ms %5.1f%%\n",
                  name, t->call->sizes, t->seconds * 1e6, t->rate / (is_gemm ? 1e12 : 1e9),
                  is_gemm ? "TFLOP/s" : "GB/s   ", 100 * t->share, bounds[t->work.bound],
                  t->call->per_step, in_step * 1e3, 100 * in_step / s->median);
        json_newline(w, 2);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", name);
        json_write_string(w, "sizes", t->call->sizes);
        json_write_int(w, "calls", t->call->per_step);
        json_write_format(w, "flops", "%.9g", t->work.flops);
        json_write_format(w, "bytes", "%.9g", t->work.bytes);
        json_write_format(w, "seconds", "%.6g", t->seconds);
        json_write_format(w, "rate", "%.6g", t->rate);
        json_write_string(w, "ceiling", bounds[t->work.bound]);
        json_write_format(w, "share", "%.5g", t->share);
        json_end_object(w);
    }
    json_end_array(w);
}

static void add_step(const struct device_bench *b, double peak, const struct timed_steps *s,
                     struct text *table, struct json_writer *w)
{
    double mfu = s->flops / s->median / peak, alone = s->alone;
    double causal = model_causal_flops_per_token(b->shape, (int)b->config->training.seq_len);
    causal *= s->tokens / s->median;
    text_addf(table,
              "\nstep  %.4g s (median; its operations, each timed alone, sum to %.4g s), "
              "%.0f tokens/s\nMFU   %.1f%% of %.1f TFLOP/s, %s; %.1f%% if causal attention "
              "counts half\nmemory in use  %.2f GiB\n",
              s->median, alone, s->tokens / s->median, 100 * mfu, peak / 1e12,
              b->machine->peak_flops > 0 ? "the device's peak" : "the GEMM above",
              100 * causal / peak, (double)s->memory / (1 << 30));
    json_newline(w, 1);
    json_begin_object(w, "step", JSON_INLINE);
    json_begin_array(w, "seconds", JSON_INLINE);
    for (int i = 0; i < b->rounds; i++) json_write_format(w, NULL, "%.6g", s->seconds[i]);
    json_end_array(w);
    json_write_format(w, "median", "%.6g", s->median);
    json_write_format(w, "alone", "%.6g", alone);
    json_write_format(w, "tokens", "%.0f", s->tokens);
    json_write_format(w, "tokens_per_second", "%.6g", s->tokens / s->median);
    json_write_format(w, "flops", "%.9g", s->flops);
    json_write_format(w, "peak_flops", "%.6g", peak);
    json_write_format(w, "mfu", "%.5g", mfu);
    json_write_format(w, "mfu_causal", "%.5g", causal / peak);
    json_write_format(w, "memory_bytes", "%zu", s->memory);
    json_end_object(w);
}

enum status device_bench_run(const struct device_bench *b, struct text *table,
                             struct json_writer *w)
{
    struct device_ceilings c;
    struct timed_steps s = {.seconds = heap((size_t)b->rounds * sizeof *s.seconds)};
    struct timed_call *all = heap(b->calls->count * sizeof *all);
    enum status st = STATUS_OK;
    TRY_OUT(device_bench_ceilings(&c, b->machine, b->bytes, b->rounds));
    TRY_OUT(time_operations(b, &c, all));
    TRY_OUT(time_steps(b, &s));
    s.median = median(s.seconds, b->rounds);
    qsort(all, b->calls->count, sizeof *all, by_step_time);
    for (size_t i = 0; i < b->calls->count; i++) s.alone += all[i].seconds * all[i].call->per_step;
    add_ceilings(&c, table, w);
    add_operations(b, all, &s, table, w);
    add_step(b, peak_of(b, &c), &s, table, w);
out:
    free(s.seconds);
    free(all);
    return st;
}
