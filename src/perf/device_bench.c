// SPDX-License-Identifier: Apache-2.0
#include "perf/device_bench.h"

#include "base/byte_size.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
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

/* What has been measured so far. */
struct results {
    double *seconds; /* of each step; owned */
    int num_steps;
    double tokens, flops; /* of a step */
    size_t memory;        /* bytes of the device in use during a step */
    struct device_ceilings ceilings;
    struct timed_call *calls; /* owned */
    size_t num_calls;
};

/* Fills a device buffer as op_fill would.  The content is periodic, so one period comes from the
 * host and the device copies the rest. */
static enum status fill_buffer(const struct op_buffer *b, void *at, struct queue *queue)
{
    struct op_buffer first = *b;
    struct store to = {.x = at, .dtype = b->dtype, .queue = queue};
    if (first.count > OP_FILL_REPEATS) first.count = OP_FILL_REPEATS;
    size_t bytes = first.count * dtype_bytes(b->dtype);
    void *host = heap(bytes);
    op_fill(&first, host);
    enum status st = queue_copy(queue, at, host, bytes);
    free(host);
    TRY(st);
    if (first.count) TRY(store_repeat(&to, 0, first.count, b->count));
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

static const char *const bounds[] = {
    [BOUND_PEAK] = "gemm", [BOUND_READ] = "copy", [BOUND_COPY] = "copy", [BOUND_UPDATE] = "copy"};

static double median_step(const struct results *r)
{
    double *sorted = heap((size_t)r->num_steps * sizeof *sorted);
    for (int i = 0; i < r->num_steps; i++) sorted[i] = r->seconds[i];
    double seconds = median(sorted, r->num_steps);
    free(sorted);
    return seconds;
}

/* 0 if unknown. */
static double peak_of(const struct device_bench *b, const struct results *r)
{
    return b->machine->peak_flops > 0 ? b->machine->peak_flops : r->ceilings.flops[BF16];
}

static double causal_flops(const struct device_bench *b, const struct results *r)
{
    return model_causal_flops_per_token(b->shape, (int)b->config->training.seq_len) * r->tokens;
}

/* A step whose calls are each timed alone. */
static double sum_alone(const struct results *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->num_calls; i++)
        sum += r->calls[i].seconds * r->calls[i].call->per_step;
    return sum;
}

static void write_step(const struct device_bench *b, const struct results *r, struct json_writer *w)
{
    double seconds = median_step(r), peak = peak_of(b, r);
    json_newline(w, 1);
    json_begin_object(w, "step", JSON_INLINE);
    json_begin_array(w, "seconds", JSON_INLINE);
    for (int i = 0; i < r->num_steps; i++) json_write_format(w, NULL, "%.6g", r->seconds[i]);
    json_end_array(w);
    json_write_format(w, "median", "%.6g", seconds);
    if (r->num_calls == b->calls->count) json_write_format(w, "alone", "%.6g", sum_alone(r));
    json_write_format(w, "tokens", "%.0f", r->tokens);
    json_write_format(w, "tokens_per_second", "%.6g", r->tokens / seconds);
    json_write_format(w, "flops", "%.9g", r->flops);
    if (peak > 0) {
        json_write_format(w, "peak_flops", "%.6g", peak);
        json_write_format(w, "mfu", "%.5g", r->flops / seconds / peak);
        json_write_format(w, "mfu_causal", "%.5g", causal_flops(b, r) / seconds / peak);
    }
    json_write_format(w, "memory_bytes", "%zu", r->memory);
    json_end_object(w);
}

static void write_ceilings(const struct device_ceilings *c, struct json_writer *w)
{
    json_newline(w, 1);
    json_begin_object(w, "ceilings", JSON_INLINE);
    json_write_int(w, "side", c->side);
    json_write_format(w, "bf16", "%.6g", c->flops[BF16]);
    json_write_format(w, "f32", "%.6g", c->flops[F32]);
    json_write_format(w, "copy", "%.6g", c->copy);
    json_end_object(w);
}

static void write_operations(const struct results *r, struct json_writer *w)
{
    json_newline(w, 1);
    json_begin_array(w, "operations", JSON_INLINE);
    for (size_t i = 0; i < r->num_calls; i++) {
        const struct timed_call *t = &r->calls[i];
        json_newline(w, 2);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", op_name(t->call->call.op));
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

static void make_json(const struct device_bench *b, const struct results *r, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "version", LLAMERO_VERSION);
    json_write_string(&w, "kernels", b->machine->ops->backend);
    json_write_int(&w, "parameters", b->parameters);
    json_write_bool(&w, "complete", r->num_calls == b->calls->count);
    if (r->num_steps) write_step(b, r, &w);
    if (r->ceilings.copy > 0) write_ceilings(&r->ceilings, &w);
    if (r->num_calls) write_operations(r, &w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(out, "\n");
}

/* Writes what is measured so far, so that a kill does not lose it; a stream gets the whole only, at
 * the end. */
static enum status save(const struct device_bench *b, const struct results *r)
{
    struct text json = {0};
    if (!b->output || !b->output[0] || file_is_stream(b->output)) return STATUS_OK;
    make_json(b, r, &json);
    enum status st = file_write(b->output, json.data, json.len);
    text_release(&json);
    return st;
}

static enum status open_model(const struct device_bench *b, struct trainer *t)
{
    struct queue *queue = b->machine->queue;
    TRY(trainer_open(t, b->config, b->shape, b->machine));
    struct store to = store_f32(t->optim.weights, queue);
    if (t->optim.split)
        to = (struct store){.x = t->optim.copy, .low = t->optim.low, .dtype = BF16, .queue = queue};
    enum status st =
        init_weights_repeat(&t->whole, &t->shard, b->shape, (uint64_t)b->config->debug.seed, &to);
    if (!st) st = trainer_sync_weights(t);
    if (!st) st = queue_wait(queue);
    if (st) trainer_close(t);
    return st;
}

/* One step for warm-up, or two if the second is captured as a graph, then `rounds`. */
static enum status time_steps(const struct device_bench *b, struct results *r)
{
    struct trainer t;
    struct step_result result = {0};
    struct queue *queue = b->machine->queue;
    enum status st = STATUS_OK;
    size_t all;
    TRY(open_model(b, &t));
    batch_fill_random(&t.batch, b->shape->V);
    r->tokens = (double)t.batch.B * t.batch.T;
    r->flops = model_flops_per_token(b->shape, t.batch.T) * r->tokens;
    for (int i = t.step_graph.is_enabled ? -2 : -1; i < b->rounds; i++) {
        double begin = clock_monotonic_s();
        TRY_OUT(trainer_train_batch(&t, &result));
        TRY_OUT(queue_wait(queue));
        double seconds = clock_monotonic_s() - begin;
        if (result.skipped)
            FAIL_OUT(DIVERGED, "a step on random token IDs was skipped: loss %g", result.loss);
        log_line(LOG_INFO, "%s: %.4g s, %.0f tokens/s", i < 0 ? "warm-up step" : "step", seconds,
                 r->tokens / seconds);
        if (i < 0) continue;
        r->seconds[r->num_steps++] = seconds;
        TRY_OUT(queue_memory_info(queue, &all, &r->memory));
        TRY_OUT(save(b, r));
    }
out:
    trainer_close(&t);
    return st;
}

static double ceiling_of(const struct op_work *w, const struct device_ceilings *c)
{
    return w->bound != BOUND_PEAK ? c->copy : c->flops[w->buffers[0].dtype];
}

static enum status time_operations(const struct device_bench *b, struct results *r)
{
    for (size_t i = 0; i < b->calls->count; i++) {
        struct timed_call *t = &r->calls[i];
        t->call = &b->calls->calls[i];
        op_work(&t->call->call, &t->work);
        TRY(time_call(&t->call->call, b->machine, b->rounds, &t->seconds));
        bool is_gemm = t->work.bound == BOUND_PEAK;
        t->rate = (is_gemm ? t->work.flops : t->work.bytes) / t->seconds;
        t->share = t->rate / ceiling_of(&t->work, &r->ceilings);
        r->num_calls++;
        TRY(save(b, r));
    }
    return STATUS_OK;
}

static int by_step_time(const void *a, const void *b)
{
    const struct timed_call *s = a, *t = b;
    double x = s->seconds * s->call->per_step, y = t->seconds * t->call->per_step;
    return (x < y) - (x > y);
}

static void add_ceilings(const struct device_ceilings *c, struct text *table)
{
    text_addf(table,
              "ceilings\n  GEMM of %d x %d, bf16   %10.1f TFLOP/s\n  the same in f32%*s"
              "%10.1f TFLOP/s\n  copy, read plus written %10.1f GB/s\n\n",
              c->side, c->side, c->flops[BF16] / 1e12, 9, "", c->flops[F32] / 1e12, c->copy / 1e9);
}

static void add_operations(const struct results *r, struct text *table)
{
    double step = median_step(r);
    text_adds(table, "operations, each timed alone\n");
    for (size_t i = 0; i < r->num_calls; i++) {
        const struct timed_call *t = &r->calls[i];
        bool is_gemm = t->work.bound == BOUND_PEAK;
        double in_step = t->seconds * t->call->per_step;
        text_addf(table, "  %-22s %-27s %9.1f us %8.1f %s %5.1f%% of %s  %4d x %8.2f ms %5.1f%%\n",
                  op_name(t->call->call.op), t->call->sizes, t->seconds * 1e6,
                  t->rate / (is_gemm ? 1e12 : 1e9), is_gemm ? "TFLOP/s" : "GB/s   ", 100 * t->share,
                  bounds[t->work.bound], t->call->per_step, in_step * 1e3, 100 * in_step / step);
    }
}

static void add_step(const struct device_bench *b, const struct results *r, struct text *table)
{
    double seconds = median_step(r), peak = peak_of(b, r);
    text_addf(table,
              "\nstep  %.4g s (median; its operations, each timed alone, sum to %.4g s), "
              "%.0f tokens/s\nMFU   %.1f%% of %.1f TFLOP/s, %s; %.1f%% if causal attention "
              "counts half\nmemory in use  %s\n",
              seconds, sum_alone(r), r->tokens / seconds, 100 * r->flops / seconds / peak,
              peak / 1e12, b->machine->peak_flops > 0 ? "the device's peak" : "the GEMM above",
              100 * causal_flops(b, r) / seconds / peak, byte_size_format((double)r->memory).text);
}

enum status device_bench_run(const struct device_bench *b, struct text *table, struct text *json)
{
    struct results r = {.seconds = heap((size_t)b->rounds * sizeof *r.seconds),
                        .calls = heap(b->calls->count * sizeof *r.calls)};
    enum status st = STATUS_OK;
    TRY_OUT(time_steps(b, &r));
    TRY_OUT(device_bench_ceilings(&r.ceilings, b->machine, b->bytes, b->rounds));
    TRY_OUT(save(b, &r));
    TRY_OUT(time_operations(b, &r));
    qsort(r.calls, r.num_calls, sizeof *r.calls, by_step_time);
    TRY_OUT(save(b, &r));
    make_json(b, &r, json);
    add_ceilings(&r.ceilings, table);
    add_operations(&r, table);
    add_step(b, &r, table);
out:
    free(r.seconds);
    free(r.calls);
    return st;
}
