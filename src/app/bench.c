// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/bench_tune.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "machine/machine.h"
#include "machine/node.h"
#include "metrics/memory.h"
#include "perf/cpu_bench.h"
#include "perf/device_bench.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/inputs.h"
#include "train/run.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model that is measured without CONFIG: 124.7M parameters. */
static const char *const default_settings[] = {
    "model.dim=768",
    "model.n_layers=12",
    "model.n_heads=12",
    "model.n_kv_heads=4",
    "model.ffn_hidden=2048",
    "model.vocab_size=32000",
    "model.tie_embeddings=false",
    "training.local_batch_size=4",
    "training.seq_len=1024",
    "activation_checkpoint.mode=none",
};
enum { NUM_DEFAULTS = sizeof default_settings / sizeof *default_settings };

struct bench {
    struct config *config;
    struct machine machine;
    struct model_shape shape;
    int64_t parameters;
    struct ceilings ceilings;
    struct op_calls calls;
    struct call_timing *timings; /* of calls.calls */
    struct step_timing step;
    struct part {
        const char *name;
        double seconds; /* of a step */
    } parts[OP_COUNT + 2];
    int num_parts;
};

static enum dtype dtype_of(const struct config *c) { return training_compute_dtype(&c->training); }

static const char *const bounds[] = {
    [BOUND_PEAK] = "peak", [BOUND_READ] = "read", [BOUND_COPY] = "copy", [BOUND_UPDATE] = "update"};

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct part *)a)->seconds, y = ((const struct part *)b)->seconds;
    return (x < y) - (x > y);
}

/* Breaks a step's time down into each operation, zeroing of gradients, and the rest. */
static void make_parts(struct bench *b)
{
    struct part *zero = &b->parts[OP_COUNT], *rest = &b->parts[OP_COUNT + 1];
    for (enum op_id op = 0; op < OP_COUNT; op++) b->parts[op].name = op_name(op);
    for (size_t i = 0; i < b->calls.count; i++)
        b->parts[b->calls.calls[i].call.op].seconds += b->timings[i].step_seconds;
    *zero = (struct part){"zero gradients", b->step.zero_seconds};
    *rest = (struct part){"rest", b->step.rest};
    b->num_parts = OP_COUNT + 2;
    qsort(b->parts, (size_t)b->num_parts, sizeof *b->parts, by_seconds);
}

static enum status open_model(struct bench *b)
{
    const struct config *c = b->config;
    struct tokenizer *t = NULL;
    struct layout layout;
    TRY(inputs_fetch_tokenizer(c, comm_self()));
    TRY(inputs_open_tokenizer(c, false, &t));
    enum status st = model_shape_resolve(&b->shape, &c->model, tokenizer_vocab_size(t));
    tokenizer_close(t);
    TRY(st);
    if (b->shape.max_context < c->training.seq_len) b->shape.max_context = (int)c->training.seq_len;
    layout_init(&layout, &b->shape, 1);
    b->parameters = layout.parameters;
    layout_release(&layout);
    return STATUS_OK;
}

/* Warns if threads scale badly: then they share cores with other processes or hyperthreads. */
static void warn_if_cores_are_shared(const struct bench *b)
{
    double threads = b->machine.queue->num_threads, speedup = threads;
    for (enum ceiling i = 0; i < CEILING_COUNT; i++) {
        const double *flops = b->ceilings.flops[i];
        if (flops[THREADS_ALL] < speedup * flops[THREADS_ONE])
            speedup = flops[THREADS_ALL] / flops[THREADS_ONE];
    }
    if (speedup < 0.7 * threads)
        log_line(
            LOG_WARN,
            "%.0f threads are only %.2f times as fast as one: other processes use these cores, "
            "or they are hyperthreads; the figures below are too low",
            threads, speedup);
}

static enum status measure(struct bench *b, size_t megabytes, int rounds)
{
    struct arena memory = {0};
    enum status st = STATUS_OK;
    TRY_OUT(op_calls_record_step(&b->calls, b->config, &b->shape, b->machine.ops, false));
    b->timings = heap(b->calls.count * sizeof *b->timings);
    TRY_OUT(arena_init(&memory, megabytes << 20, NULL));
    log_line(LOG_INFO, "measuring the ceilings of this machine ...");
    TRY_OUT(cpu_bench_measure_ceilings(&b->ceilings, b->machine.ops, b->machine.queue->num_threads,
                                       memory.base, memory.size));
    warn_if_cores_are_shared(b);
    machine_tune(&b->machine, &b->config->device, 0);
    trainer_set_queue(b->machine.queue, b->config);
    const struct cpu_bench c = {.config = b->config,
                                .machine = &b->machine,
                                .shape = &b->shape,
                                .calls = &b->calls,
                                .memory = memory.base,
                                .size = memory.size,
                                .rounds = rounds};
    TRY_OUT(cpu_bench_autotune(&c));
    log_line(LOG_INFO, "measuring %zu operations of a step, each alone ...", b->calls.count);
    TRY_OUT(cpu_bench_operations(&c, b->timings));
    arena_release(&memory);
    log_line(LOG_INFO, "measuring %d + 1 whole steps ...", rounds);
    TRY_OUT(cpu_bench_step(&c, b->timings, &b->step));
    make_parts(b);
out:
    arena_release(&memory);
    return st;
}

static void print_ceilings(const struct bench *b)
{
    const struct ceilings *c = &b->ceilings;
    printf("%-26s %10s %7d threads\n", "ceilings", "1 thread", b->machine.queue->num_threads);
    for (enum ceiling i = 0; i < CEILING_COUNT; i++)
        printf("  %-24s %10.1f %10.1f GFLOP/s\n", cpu_bench_ceiling_text(i),
               c->flops[i][THREADS_ONE] / 1e9, c->flops[i][THREADS_ALL] / 1e9);
    for (enum bandwidth_kernel i = 0; i < BANDWIDTH_COUNT; i++)
        printf("  memory: %-16s %10.1f %10.1f GB/s\n", bandwidth_name(i),
               c->bytes[i][THREADS_ONE] / 1e9, c->bytes[i][THREADS_ALL] / 1e9);
}

struct timed_line {
    const struct step_call *call;
    const struct call_timing *timing;
};

static int by_step_seconds(const void *a, const void *b)
{
    double x = ((const struct timed_line *)a)->timing->step_seconds;
    double y = ((const struct timed_line *)b)->timing->step_seconds;
    return (x < y) - (x > y);
}

static void print_calls(const struct bench *b)
{
    size_t hidden = 0, count = b->calls.count;
    struct timed_line *lines = heap(count * sizeof *lines);
    for (size_t i = 0; i < count; i++)
        lines[i] = (struct timed_line){&b->calls.calls[i], &b->timings[i]};
    qsort(lines, count, sizeof *lines, by_step_seconds);
    printf("\n%-70s %s\n", "operations                                            one call alone",
           "      in a step");
    for (size_t i = 0; i < count; i++) {
        const struct call_timing *t = lines[i].timing;
        struct op_work w;
        op_work(&lines[i].call->call, &w);
        if (t->step_seconds < 5e-4 * b->step.mean) {
            hidden++;
            continue;
        }
        printf("  %-22s %-25s %7.2f ms %7.1f %s %5.1f%% of %-6s %3d x %7.1f ms %5.1f%%\n",
               op_name(lines[i].call->call.op), lines[i].call->sizes, t->seconds * 1e3,
               t->rate / 1e9, w.bound == BOUND_PEAK ? "GFLOP/s" : "GB/s   ", t->share * 100,
               bounds[w.bound], lines[i].call->per_step, t->step_seconds * 1e3,
               100 * t->step_seconds / b->step.mean);
    }
    if (hidden) printf("  and %zu that each take less than 0.05%% of a step\n", hidden);
    free(lines);
}

/* A step without gaps between calls and without their effect on each other's caches. */
static double sum_alone(const struct bench *b)
{
    double sum = 0;
    for (size_t i = 0; i < b->calls.count; i++)
        sum += b->timings[i].seconds * b->calls.calls[i].per_step;
    return sum;
}

/* Time of a step's GEMMs with the autotuned blockings over that with the default, from each
 * GEMM's median ratio; 0: not tuned. */
static double tuned_ratio(const struct bench *b)
{
    double tuned = 0, all = 0;
    for (size_t i = 0; i < b->calls.count; i++) {
        double seconds = b->timings[i].default_seconds * b->calls.calls[i].per_step;
        all += seconds;
        tuned += seconds * b->timings[i].tuned;
    }
    return all > 0 ? tuned / all : 0;
}

static void print_tuned(const struct bench *b)
{
    if (!(tuned_ratio(b) > 0)) return;
    printf("\n%-70s %s\n", "autotuned GEMMs (device.tune_gemm)", "time / default's time");
    for (size_t i = 0; i < b->calls.count; i++) {
        const struct call_timing *t = &b->timings[i];
        if (t->tuned > 0)
            printf("  %-22s %-25s %7.2f ms, default %7.2f ms %14.3f\n",
                   op_name(b->calls.calls[i].call.op), b->calls.calls[i].sizes, t->seconds * 1e3,
                   t->default_seconds * 1e3, t->tuned);
    }
    printf("  %-69s %8.3f\n", "all GEMMs of a step", tuned_ratio(b));
}

/* The higher of ceiling and bursts: if the bursts around the steps are faster, another process
 * disturbed the ceiling. */
static double peak_of(const struct bench *b)
{
    enum ceiling c = dtype_of(b->config) == BF16 ? CEILING_bf16 : CEILING_f32;
    return fmax(b->ceilings.flops[c][THREADS_ALL], b->step.burst_flops);
}

static void print_step(const struct bench *b)
{
    const struct step_timing *s = &b->step;
    printf("\nbreakdown of a step, %.1f ms\n", s->mean * 1e3);
    for (int i = 0; i < b->num_parts; i++)
        printf("  %-24s %10.1f ms %6.2f%%%s\n", b->parts[i].name, b->parts[i].seconds * 1e3,
               100 * b->parts[i].seconds / s->mean,
               strcmp(b->parts[i].name, "rest") ? "" : "  loss reduction, gaps between operations");
    printf("\nstep  %.4g s (median; its calls, each timed alone, sum to %.4g s), %.1f tokens/s\n"
           "MFU   %.1f%% of %.1f GFLOP/s, the peak in registers; %.1f%% if causal attention "
           "counts half;\n      %.1f%% of the peak in bursts around the steps, %.1f GFLOP/s\n",
           s->median, sum_alone(b), (double)s->tokens / s->median,
           100 * s->flops / s->median / peak_of(b), peak_of(b) / 1e9,
           100 * s->flops_causal / s->median / peak_of(b), 100 * s->burst_share,
           s->burst_flops / 1e9);
}

static void print_table(const struct bench *b)
{
    const struct model_shape *m = &b->shape;
    struct text processor = {0};
    node_processor(&processor);
    printf("llamero %s, kernels \"%s\", %d threads, %s\n", LLAMERO_VERSION, b->machine.ops->backend,
           b->machine.queue->num_threads, processor.data);
    printf("%lld parameters: %d blocks, width %d, %d heads over %d, feed-forward %d, vocabulary "
           "%d%s; %d rows of %lld tokens, %s\n\n",
           (long long)b->parameters, m->L, m->D, m->H, m->G, m->F, m->V, m->tied ? ", tied" : "",
           trainer_rows(b->config, &b->machine.mesh), (long long)b->config->training.seq_len,
           dtype_name(dtype_of(b->config)));
    print_ceilings(b);
    print_calls(b);
    print_tuned(b);
    print_step(b);
    text_release(&processor);
}

static void write_ceiling(const char *name, const double *rates, struct json_writer *w)
{
    json_begin_object(w, name, JSON_INLINE);
    json_write_format(w, "one", "%.6g", rates[THREADS_ONE]);
    json_write_format(w, "all", "%.6g", rates[THREADS_ALL]);
    json_end_object(w);
}

static void write_ceilings(const struct ceilings *c, struct json_writer *w)
{
    json_begin_object(w, "ceilings", JSON_INLINE);
    json_begin_object(w, "flops", JSON_INLINE);
    for (enum ceiling i = 0; i < CEILING_COUNT; i++)
        write_ceiling(cpu_bench_ceiling_name(i), c->flops[i], w);
    json_end_object(w);
    json_begin_object(w, "bytes", JSON_INLINE);
    for (enum bandwidth_kernel i = 0; i < BANDWIDTH_COUNT; i++)
        write_ceiling(bandwidth_name(i), c->bytes[i], w);
    json_end_object(w);
    json_end_object(w);
}

static void write_calls(const struct bench *b, struct json_writer *w)
{
    json_begin_array(w, "operations", JSON_INLINE);
    for (size_t i = 0; i < b->calls.count; i++) {
        const struct step_call *c = &b->calls.calls[i];
        const struct call_timing *time = &b->timings[i];
        struct op_work work;
        op_work(&c->call, &work);
        json_newline(w, 2);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", op_name(c->call.op));
        json_write_string(w, "sizes", c->sizes);
        json_write_int(w, "calls", c->per_step);
        json_write_format(w, "flops", "%.9g", work.flops);
        json_write_format(w, "bytes", "%.9g", work.bytes);
        json_write_format(w, "seconds", "%.6g", time->seconds);
        json_write_format(w, "rate", "%.6g", time->rate);
        json_write_string(w, "ceiling", bounds[work.bound]);
        json_write_format(w, "share", "%.5g", time->share);
        json_write_format(w, "step_seconds", "%.6g", time->step_seconds);
        if (time->tuned > 0) {
            json_write_format(w, "default_seconds", "%.6g", time->default_seconds);
            json_write_format(w, "tuned", "%.5g", time->tuned);
        }
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_step(const struct bench *b, int rounds, struct json_writer *w)
{
    const struct step_timing *s = &b->step;
    json_begin_object(w, "step", JSON_INLINE);
    json_begin_array(w, "seconds", JSON_INLINE);
    for (int i = 0; i < rounds; i++) json_write_format(w, NULL, "%.6g", s->seconds[i]);
    json_end_array(w);
    json_write_format(w, "median", "%.6g", s->median);
    json_write_format(w, "mean", "%.9g", s->mean);
    json_write_format(w, "alone", "%.6g", sum_alone(b));
    json_write_int(w, "tokens", s->tokens);
    json_write_format(w, "tokens_per_second", "%.6g", (double)s->tokens / s->median);
    json_write_format(w, "flops", "%.9g", s->flops);
    json_write_format(w, "flops_causal", "%.9g", s->flops_causal);
    json_write_format(w, "peak_flops", "%.6g", peak_of(b));
    json_write_format(w, "mfu", "%.5g", s->flops / s->median / peak_of(b));
    json_write_format(w, "mfu_causal", "%.5g", s->flops_causal / s->median / peak_of(b));
    json_write_format(w, "burst_flops", "%.6g", s->burst_flops);
    json_write_format(w, "burst_share", "%.5g", s->burst_share);
    json_begin_array(w, "parts", JSON_INLINE);
    for (int i = 0; i < b->num_parts; i++) {
        json_newline(w, 2);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", b->parts[i].name);
        json_write_format(w, "seconds", "%.9g", b->parts[i].seconds);
        json_write_format(w, "share", "%.6g", b->parts[i].seconds / s->mean);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

static void write_model(const struct bench *b, struct json_writer *w)
{
    const struct model_shape *m = &b->shape;
    json_begin_object(w, "model", JSON_INLINE);
    json_write_int(w, "parameters", b->parameters);
    model_shape_write_json(m, w);
    json_write_bool(w, "tied", m->tied);
    json_write_int(w, "rows", trainer_rows(b->config, &b->machine.mesh));
    json_write_int(w, "seq_len", b->config->training.seq_len);
    json_write_string(w, "dtype", dtype_name(dtype_of(b->config)));
    json_end_object(w);
}

static void make_json(const struct bench *b, int rounds, struct text *t)
{
    struct json_writer w = {.text = t};
    struct text processor = {0};
    node_processor(&processor);
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "version", LLAMERO_VERSION);
    json_write_string(&w, "kernels", b->machine.ops->backend);
    json_write_int(&w, "threads", b->machine.queue->num_threads);
    json_write_string(&w, "processor", processor.data);
    json_newline(&w, 1);
    write_model(b, &w);
    json_newline(&w, 1);
    write_ceilings(&b->ceilings, &w);
    json_newline(&w, 1);
    write_calls(b, &w);
    json_newline(&w, 1);
    if (tuned_ratio(b) > 0) {
        json_write_format(&w, "tuned", "%.5g", tuned_ratio(b));
        json_newline(&w, 1);
    }
    write_step(b, rounds, &w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(t, "\n");
    text_release(&processor);
}

static enum status bench_gpu(struct bench *b, const struct device_bench *bench, struct text *table,
                             struct text *json)
{
    const struct model_shape *m = &b->shape;
    const struct ops *ops = b->machine.ops;
    bool native_fp8 = ops->has_native_fp8 && ops->has_native_fp8(b->machine.queue);
    TRY(op_calls_record_step(&b->calls, b->config, m, ops, native_fp8));
    machine_tune(&b->machine, &b->config->device, 0);
    text_addf(table, "llamero %s, kernels \"%s\"\n%lld parameters; %d rows of %lld tokens, %s\n\n",
              LLAMERO_VERSION, b->machine.ops->backend, (long long)b->parameters,
              trainer_rows(b->config, &b->machine.mesh), (long long)b->config->training.seq_len,
              dtype_name(dtype_of(b->config)));
    TRY(device_bench_run(bench, table, json));
    return STATUS_OK;
}

/* Loads the default model or CONFIG, then the command line; disables data, validation and
 * checkpoints. */
static enum status load_config(struct config *c, const struct arguments *a)
{
    const char *settings[NUM_DEFAULTS + sizeof a->settings / sizeof *a->settings];
    int count = 0;
    if (!a->num_words)
        for (; count < NUM_DEFAULTS; count++) settings[count] = default_settings[count];
    for (int i = 0; i < a->num_settings; i++) settings[count++] = a->settings[i];
    TRY(config_load(c, a->num_words ? a->words[0] : NULL, settings, count));
    c->validation.enable = false;
    c->checkpoint.enable = false;
    if (!c->data.num_sources && !c->training.dataset_path[0])
        c->training.dataset_path = "random token ids";
    TRY(config_check(c, 1));
    return STATUS_OK;
}

static const struct usage usage = {
    "bench",
    {{NULL, {USAGE_ANY(FILE, "CONFIG"), USAGE_SETTINGS}}},
    "Measures, in one run: this machine's ceilings; each operation of a step compared with the\n"
    "ceiling that bounds it; and whole steps with a breakdown of their time.  Token IDs are\n"
    "random, no data is read.  Without CONFIG the model is a Llama of 124.7M parameters with\n"
    "4 rows of 1024 tokens, in bfloat16.  device.tune_gemm=true also compares autotuned GEMMs\n"
    "with the default.  With --tune=FILE it only times the GEMMs of each CONFIG, in a rank of "
    "every\n"
    "pipeline stage, and keeps the fastest kernel of each in FILE for device.tune_file.",
};

enum status command_bench(int argc, char **argv)
{
    int64_t rounds = 5, megabytes = 512;
    const char *output = "", *tune = "";
    bool json = false;
    const struct flag flags[] = {
        {"rounds", FLAG_INT(1, 1000), &rounds, "repetitions of each operation and of the step"},
        {"megabytes", FLAG_INT(1, FLAG_UNLIMITED), &megabytes,
         "memory over which bandwidth is measured"},
        {"output", FLAG_FILE, &output,
         "write the JSON object to this file; on a GPU, after each measurement"},
        {"tune", FLAG_FILE, &tune,
         "only time the GEMMs of CONFIG..., and keep the fastest kernels in this file"},
        {"json", FLAG_SWITCH, &json, "print the JSON object instead of the table"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (tune[0]) {
        static const char *const others[] = {"rounds", "megabytes", "output", "json"};
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (arguments_have(&a, flags, others[i]))
                FAIL(USAGE, "--%s has no effect with --tune, which only times GEMMs", others[i]);
        const struct bench_tune t = {tune, a.words, a.num_words, a.settings, a.num_settings};
        return bench_tune_run(&t);
    }
    if (a.num_words > 1)
        FAIL(USAGE, "bench: expected at most 1 CONFIG without --tune, got %d", a.num_words);
    if (megabytes > memory_total_bytes() >> 20)
        FAIL(USAGE, "--megabytes: must be at most %lld, the memory of this machine, is %lld",
             (long long)memory_total_bytes() >> 20, (long long)megabytes);
    struct config c;
    struct bench b = {.config = &c};
    struct text results = {0}, table = {0};
    enum status st = STATUS_OK;
    TRY_OUT(load_config(&c, &a));
    TRY_OUT(machine_open(&b.machine, &c.device));
    TRY_OUT(open_model(&b));
    bool gpu = queue_device_allocator(b.machine.queue);
    if (gpu) {
        const struct device_bench d = {&c,           &b.machine,  &b.shape,
                                       &b.calls,     (int)rounds, (size_t)megabytes << 20,
                                       b.parameters, output};
        TRY_OUT(bench_gpu(&b, &d, &table, &results));
    } else {
        TRY_OUT(measure(&b, (size_t)megabytes, (int)rounds));
        make_json(&b, (int)rounds, &results);
    }
    if (output[0]) TRY_OUT(file_write(output, results.data, results.len));
    if (json)
        fputs(results.data, stdout);
    else if (gpu)
        fputs(table.data, stdout);
    else
        print_table(&b);
out:
    text_release(&results), text_release(&table);
    cpu_bench_step_release(&b.step);
    free(b.timings);
    op_calls_release(&b.calls);
    machine_close(&b.machine);
    config_release(&c);
    return st;
}
