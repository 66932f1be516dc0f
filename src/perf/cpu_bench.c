// SPDX-License-Identifier: Apache-2.0
#include "perf/cpu_bench.h"

#include "base/clock.h"
#include "base/median.h"
#include "machine/cpu.h"
#include "machine/peak.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cpu_bench_ceiling_name(enum ceiling c)
{
    static const char *const names[] = {
#define X(name, text) #name,
        CEILING_LIST(X)
#undef X
    };
    return names[c];
}

const char *cpu_bench_ceiling_text(enum ceiling c)
{
    static const char *const texts[] = {
#define X(name, text) text,
        CEILING_LIST(X)
#undef X
    };
    return texts[c];
}

enum status cpu_bench_measure_ceilings(struct ceilings *c, const struct ops *ops, int num_threads,
                                       void *memory, size_t size)
{
    enum { PASSES = 3 };
    for (int t = 0; t < THREADS_COUNT; t++) {
        int threads = t == THREADS_ONE ? 1 : num_threads;
        c->flops[CEILING_f32][t] = peak_measure_flops(ops, threads, F32);
        c->flops[CEILING_bf16][t] = peak_measure_flops(ops, threads, BF16);
        TRY(peak_measure_micro_kernel(ops, threads, peak_cache_bytes(1) / 4 * 3,
                                      &c->flops[CEILING_panel_l1][t]));
        TRY(peak_measure_micro_kernel(ops, threads, peak_cache_bytes(2) / 2,
                                      &c->flops[CEILING_panel_l2][t]));
        for (enum bandwidth_kernel s = 0; s < BANDWIDTH_COUNT; s++)
            c->bytes[s][t] = bandwidth_measure_best(s, memory, size, threads, PASSES);
    }
    return STATUS_OK;
}

/* How calls of one dtype are timed: the ceilings to measure right before and after each. */
struct call_timer {
    const struct machine *machine;
    struct peak_burst burst;
    void *memory;
    size_t size; /* streaming through this many bytes evicts everything else from the caches */
    int rounds;
    bool tuned;
};

static struct call_timer call_timer_make(const struct cpu_bench *b, enum dtype dtype)
{
    enum { MIN_BYTES = 64 << 20 };
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t needed = l3 > MIN_BYTES / 2 ? 2 * (size_t)l3 : MIN_BYTES;
    return (struct call_timer){
        .machine = b->machine,
        .burst = peak_burst_make(b->machine->ops, b->machine->queue->num_threads, dtype, 0.002),
        .memory = b->memory,
        .size = needed < b->size ? needed : b->size,
        .rounds = b->rounds,
        .tuned = b->config->device.tune_gemm};
}

/* Measures a ceiling now. */
static double call_timer_ceiling(const struct call_timer *a, enum op_bound bound)
{
    static const enum bandwidth_kernel streams[] = {[BOUND_READ] = BANDWIDTH_read,
                                                    [BOUND_COPY] = BANDWIDTH_copy,
                                                    [BOUND_UPDATE] = BANDWIDTH_update};
    if (bound == BOUND_PEAK) return peak_burst_run(&a->burst);
    return bandwidth_measure(streams[bound], a->memory, a->size, a->machine->queue->num_threads);
}

static void evict_caches(const struct call_timer *a) { call_timer_ceiling(a, BOUND_READ); }

/* One call with the default blocking instead of the autotuned one. */
static enum status time_default(double *seconds, const struct op_call *call, void *const *buffers,
                                const struct call_timer *a)
{
    const struct machine *m = a->machine;
    evict_caches(a);
    cpu_machine_use_tuning(m, false);
    double begin = clock_monotonic_s();
    enum status st = op_run(call, m->ops, buffers, m->queue);
    *seconds = clock_monotonic_s() - begin;
    cpu_machine_use_tuning(m, true);
    return st;
}

static bool is_gemm(const struct op_call *call)
{
    return call->op == OP_linear_forward || call->op == OP_linear_backward_input ||
           call->op == OP_linear_backward_weight;
}

static enum status time_call(struct call_timing *t, const struct op_call *call,
                             const struct op_work *w, void *const *buffers,
                             const struct call_timer *a)
{
    int rounds = a->rounds;
    double *seconds = heap((size_t)rounds * sizeof *seconds);
    double *shares = heap((size_t)rounds * sizeof *shares);
    double *defaults = heap((size_t)rounds * sizeof *defaults);
    double *ratios = heap((size_t)rounds * sizeof *ratios);
    bool compare = a->tuned && is_gemm(call);
    double work = w->bound == BOUND_PEAK ? w->flops : w->bytes;
    enum status st = STATUS_OK;
    for (int i = -1; i < rounds; i++) { /* the first is a warm-up */
        if (w->bound == BOUND_PEAK) evict_caches(a);
        double ceiling = call_timer_ceiling(a, w->bound), begin = clock_monotonic_s();
        TRY_OUT(op_run(call, a->machine->ops, buffers, a->machine->queue));
        double took = clock_monotonic_s() - begin;
        ceiling = (ceiling + call_timer_ceiling(a, w->bound)) / 2;
        double other = 0;
        if (compare) TRY_OUT(time_default(&other, call, buffers, a));
        if (i < 0) continue;
        seconds[i] = took;
        if (compare) defaults[i] = other, ratios[i] = took / other;
        shares[i] = work / took / ceiling;
    }
    t->seconds = median(seconds, rounds);
    t->rate = work / t->seconds;
    t->share = median(shares, rounds);
    t->default_seconds = compare ? median(defaults, rounds) : 0;
    t->tuned = compare ? median(ratios, rounds) : 0;
out:
    free(seconds), free(shares);
    free(defaults), free(ratios);
    return st;
}

static void alloc_buffers(const struct op_work *w, struct arena *a, void **buffers)
{
    for (int i = 0; i < w->num_buffers; i++) {
        const struct op_buffer *b = &w->buffers[i];
        buffers[i] = b->content == CONTENT_FIRST && i ? buffers[0] : NULL;
        if (b->content == CONTENT_FIRST || b->content == CONTENT_NONE) continue;
        buffers[i] = arena_alloc(a, b->count, dtype_bytes(b->dtype));
        if (buffers[i]) op_fill(b, buffers[i]);
    }
}

static enum status measure_call(struct call_timing *t, const struct op_call *call,
                                const struct call_timer *a)
{
    struct op_work w;
    struct arena memory = {0};
    const struct machine *m = a->machine;
    struct queue *queue = m->queue;
    void *buffers[OP_BUFFERS] = {0};
    enum status st = STATUS_OK;
    op_work(call, &w);
    alloc_buffers(&w, &memory, buffers);
    arena_release(&queue->scratch);
    queue->sizing = true;
    TRY_OUT(op_run(call, m->ops, buffers, queue));
    queue->sizing = false;
    size_t scratch = queue->scratch.peak, bytes = memory.used;
    TRY_OUT(arena_init(&queue->scratch, scratch, NULL));
    TRY_OUT(arena_init(&memory, bytes, NULL));
    alloc_buffers(&w, &memory, buffers);
    TRY_OUT(time_call(t, call, &w, buffers, a));
out:
    queue->sizing = false;
    arena_release(&queue->scratch);
    arena_release(&memory);
    return st;
}

enum status cpu_bench_autotune(const struct cpu_bench *b)
{
    const struct op_calls *l = b->calls;
    const struct machine *m = b->machine;
    void *const nothing[OP_BUFFERS] = {0};
    enum status st = STATUS_OK;
    arena_release(&m->queue->scratch);
    m->queue->sizing = true;
    for (size_t i = 0; i < l->count && !st; i++)
        st = op_run(&l->calls[i].call, m->ops, nothing, m->queue);
    m->queue->sizing = false;
    arena_release(&m->queue->scratch);
    return st;
}

enum status cpu_bench_operations(const struct cpu_bench *b, struct call_timing *timings)
{
    struct call_timer half = call_timer_make(b, BF16), f32 = call_timer_make(b, F32);
    f32.tuned = false; /* f32 GEMMs are not tuned and have no blocking to choose */
    for (size_t i = 0; i < b->calls->count; i++) {
        const struct op_call *call = &b->calls->calls[i].call;
        struct op_work w;
        op_work(call, &w);
        TRY(measure_call(&timings[i], call, w.buffers[0].dtype == BF16 ? &half : &f32));
    }
    return STATUS_OK;
}

/* Adds a step's trace spans to the timings of their calls. */
static void add_spans(const struct trace *trace, const struct op_calls *l,
                      struct call_timing *timings, struct step_timing *s)
{
    size_t at = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_span *span = &trace->spans[i];
        double took = span->end_s - span->begin_s;
        if (!strcmp(span->name, "zero gradients")) s->zero_seconds += took;
        if (at == l->length) continue;
        size_t call = l->order[at];
        if (strcmp(span->name, op_name(l->calls[call].call.op)) != 0) continue;
        timings[call].step_seconds += took;
        at++;
    }
    BUG_IF(at != l->length); /* the step made other calls than its dry run */
}

/* One step; i is -1 for the warm-up. */
static enum status time_step(struct trainer *t, const struct op_calls *l,
                             struct call_timing *timings, struct step_timing *s, int i)
{
    struct trace trace = {0};
    struct step_result result = {0};
    t->machine.queue->trace = &trace;
    double begin = clock_monotonic_s();
    enum status st = trainer_train_batch(t, &result);
    double took = clock_monotonic_s() - begin;
    t->machine.queue->trace = NULL;
    if (!st && !result.skipped && i >= 0) {
        s->seconds[i] = took;
        add_spans(&trace, l, timings, s);
    }
    trace_release(&trace);
    TRY(st);
    if (result.skipped)
        FAIL(DIVERGED, "a step on random token IDs was skipped: loss %g", result.loss);
    return STATUS_OK;
}

static enum status time_steps(struct trainer *t, const struct op_calls *l,
                              struct call_timing *timings, struct step_timing *s, int rounds)
{
    const struct model_shape *shape = &t->model.shape;
    struct peak_burst burst =
        peak_burst_make(t->machine.ops, t->machine.queue->num_threads, t->model.dtype, 0.005);
    double *shares = heap((size_t)rounds * sizeof *shares), total = 0;
    double *peaks = heap((size_t)rounds * sizeof *peaks);
    enum status st = STATUS_OK;
    s->tokens = (int64_t)t->batch.B * t->batch.T;
    s->flops = model_flops_per_token(shape, t->batch.T) * (double)s->tokens;
    s->flops_causal = model_causal_flops_per_token(shape, t->batch.T) * (double)s->tokens;
    for (int i = -1; i < rounds; i++) {
        double peak = peak_burst_run(&burst);
        TRY_OUT(time_step(t, l, timings, s, i));
        if (i < 0) continue;
        peak = (peak + peak_burst_run(&burst)) / 2;
        peaks[i] = peak;
        total += s->seconds[i];
        shares[i] = s->flops / s->seconds[i] / peak;
    }
    s->burst_flops = median(peaks, rounds);
    s->burst_share = median(shares, rounds);
    s->mean = total / rounds;
    s->zero_seconds /= rounds;
    s->rest = s->mean - s->zero_seconds;
    for (size_t i = 0; i < l->count; i++) {
        timings[i].step_seconds /= rounds;
        s->rest -= timings[i].step_seconds;
    }
out:
    free(shares);
    free(peaks);
    return st;
}

enum status cpu_bench_step(const struct cpu_bench *b, struct call_timing *timings,
                           struct step_timing *s)
{
    struct trainer t;
    int rounds = b->rounds;
    enum status st = STATUS_OK;
    *s = (struct step_timing){.seconds = heap((size_t)rounds * sizeof *s->seconds)};
    TRY(trainer_open(&t, b->config, b->shape, b->machine));
    batch_fill_random(&t.batch, b->shape->V);
    TRY_OUT(trainer_init_weights(&t, (uint64_t)b->config->debug.seed));
    TRY_OUT(trainer_sync_weights(&t));
    TRY_OUT(time_steps(&t, b->calls, timings, s, rounds));
    double *sorted = heap((size_t)rounds * sizeof *sorted);
    memcpy(sorted, s->seconds, (size_t)rounds * sizeof *sorted);
    s->median = median(sorted, rounds);
    free(sorted);
out:
    trainer_close(&t);
    return st;
}

void cpu_bench_step_release(struct step_timing *s)
{
    free(s->seconds);
    *s = (struct step_timing){0};
}
