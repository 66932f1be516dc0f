// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/dump_folder.h"
#include "app/plan_fit.h"
#include "app/plan_search.h"
#include "app/preflight.h"
#include "app/run_memory.h"
#include "base/byte_size.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/log.h"
#include "config/data_stages.h"
#include "metrics/console.h"
#include "metrics/metrics.h"
#include "perf/hardware_probe.h"
#include "perf/step_simulator.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/inputs.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planning {
    const struct config *config; /* of the data stage that needs the most memory */
    struct data_stage stage;     /* that one */
    size_t num_stages;
    int ranks;
    struct run_memory memory;
    struct tokenizer *tokenizer;
    struct model_shape shape;
    int64_t parameters;
    double checkpoint_bytes;
    double flops_per_token;
    struct hardware hardware;
    struct estimate estimate;
    struct batch_ramp ramp;
    double ramp_step_s; /* of the ramp's first step */
};

/* Summed over all ranks. */
static double tokens_of_step(const struct planning *p)
{
    return (double)config_step_rows(p->config, &p->memory.machine.mesh) *
           (double)p->config->training.seq_len;
}

static enum status estimate(struct planning *p)
{
    const struct config *c = p->config;
    struct hardware *h = &p->hardware;
    *h = device_config_hardware(&c->device);
    if (!strcmp(h->name, "cpu")) TRY(hardware_probe_fill(h, c, &p->shape, &p->memory.machine));
    TRY(step_simulator_estimate(&p->estimate, c, &p->shape, &p->memory.machine.mesh, h));
    p->ramp = batch_ramp_of(&c->training, config_step_rows(c, &p->memory.machine.mesh));
    if (!p->ramp.increment) return STATUS_OK;
    struct config first = *c;
    struct estimate e;
    first.training.global_batch_size = p->ramp.start;
    first.training.batch_ramp.count = 0;
    TRY(step_simulator_estimate(&e, &first, &p->shape, &p->memory.machine.mesh, h));
    p->ramp_step_s = e.step_s;
    return STATUS_OK;
}

/* The steps before the first full one. */
struct ramp_phase {
    int64_t steps, rows;
    double seconds;
};

/* A step's time is taken as linear in its rows, between the ramp's first step and a full one. */
static struct ramp_phase find_ramp_phase(const struct planning *p)
{
    const struct batch_ramp *r = &p->ramp;
    struct ramp_phase phase = {.steps = batch_ramp_steps_to(r, 0, batch_ramp_full(r))};
    if (phase.steps > p->config->training.steps) phase.steps = p->config->training.steps;
    phase.rows = batch_ramp_advance(r, 0, phase.steps);
    double row_s = (p->estimate.step_s - p->ramp_step_s) / (double)(r->global - r->start);
    double fixed_s = p->ramp_step_s - row_s * (double)r->start;
    phase.seconds = fixed_s * (double)phase.steps + row_s * (double)phase.rows;
    return phase;
}

static double host_available(const struct planning *p)
{
    return run_memory_host_available(&p->memory, p->config, 0);
}

static bool fits_host(const struct planning *p)
{
    double has = host_available(p);
    return !(has > 0) || (double)run_memory_host_needed(&p->memory) <= has;
}

static bool fits(const struct planning *p)
{
    return (double)run_memory_needed(&p->memory) <= p->hardware.memory_bytes && fits_host(p);
}

static double tokens_per_second(const struct planning *p)
{
    return tokens_of_step(p) / p->estimate.step_s / p->ranks;
}

static double mfu(const struct planning *p)
{
    double peak = hardware_probe_mfu_peak(&p->hardware, p->config);
    return tokens_per_second(p) * p->flops_per_token / peak;
}

/* Without the tokenizer only model.vocab_size says how large the vocabulary is: that of the flavor
 * may be another. */
static enum status open_tokenizer(struct planning *p)
{
    const struct config *c = p->config;
    bool has_flavor = strcmp(config_key_origin(c, "model.flavor"), "default") != 0;
    struct failure f = {0};
    struct model_shape shape;
    char flavors[128] = "";
    enum status st = inputs_fetch_tokenizer(c, comm_self());
    if (!st) st = inputs_open_tokenizer(c, false, &p->tokenizer);
    if (!st) return STATUS_OK;
    if (c->model.vocab_size) {
        log_line(LOG_WARN, "planning without the tokenizer: %s", status_message());
        return STATUS_OK;
    }
    status_save(&f, st);
    TRY(model_shape_resolve(&shape, &c->model, 0));
    if (has_flavor)
        snprintf(flavors, sizeof flavors, "; that of %s %s is %d", c->model.name, c->model.flavor,
                 shape.V);
    return status_fail(st, __FILE__, __LINE__,
                       "%s; to plan without the tokenizer, set model.vocab_size%s", f.message,
                       flavors);
}

static enum status search(struct planning *p, bool json)
{
    const struct config *c = p->config;
    TRY(open_tokenizer(p));
    TRY(model_shape_resolve(&p->shape, &c->model, tokenizer_vocab_size(p->tokenizer)));
    return plan_search_print(
        &(struct planned_run){
            .config = c, .shape = &p->shape, .tokenizer = p->tokenizer, .ranks = p->ranks},
        json);
}

/* After plan. */
static enum status fit(const struct planning *p, bool json)
{
    const struct memory_plan *m = &run_memory_fullest(&p->memory)->plan;
    const struct planned_run r = {.config = p->config,
                                  .shape = &p->shape,
                                  .tokenizer = p->tokenizer,
                                  .ranks = p->ranks,
                                  .has_data_bytes = true,
                                  .data_bytes = m->bytes[MEMORY_data] + m->host[MEMORY_data]};
    return plan_fit_print(&r, json);
}

static enum status plan(struct planning *p)
{
    const struct config *c = p->config;
    struct layout layout;
    struct mesh mesh;
    TRY(mesh_resolve(&mesh, &c->parallelism, 0, p->ranks));
    TRY(open_tokenizer(p));
    TRY(model_shape_resolve(&p->shape, &c->model, tokenizer_vocab_size(p->tokenizer)));
    TRY(config_fit(c, &p->shape, &mesh));
    TRY(run_memory_plan_run(&p->memory, c, p->tokenizer, p->ranks));
    p->num_stages = data_stages_count(c);
    data_stages_open(&p->stage, c, &mesh, p->memory.data_stage);
    p->config = c = &p->stage.config;
    TRY(model_shape_resolve(&p->shape, &c->model, tokenizer_vocab_size(p->tokenizer)));
    TRY(estimate(p));
    layout_init(&layout, &p->shape, 1);
    p->parameters = layout.parameters;
    p->checkpoint_bytes = dump_folder_checkpoint_bytes(c, &p->shape);
    layout_release(&layout);
    p->flops_per_token = model_flops_per_token(&p->shape, (int)c->training.seq_len);
    return STATUS_OK;
}

/* What a rank receives in a step by one kind of transfer in one group. */
struct traffic {
    const char *group, *collective;
    int ranks;
    unsigned long long calls, bytes;
};
enum { MAX_TRAFFIC = GROUP_COUNT * TRANSFER_COUNT };

/* Lists every kind of transfer that occurs, group by group; returns their number. */
static int list_traffic(const struct planning *p, struct traffic all[MAX_TRAFFIC])
{
    int count = 0;
    for (enum group g = 0; g < GROUP_COUNT; g++)
        for (enum transfer_kind k = 0; k < TRANSFER_COUNT; k++) {
            const struct comm *c = &run_memory_fullest(&p->memory)->groups.of[g];
            if (c->counts->calls[k] && c->size > 1)
                all[count++] = (struct traffic){mesh_group_name(g), transfer_name(k), c->size,
                                                c->counts->calls[k], c->counts->bytes[k]};
        }
    return count;
}

static void write_traffic(const struct planning *p, struct json_writer *w)
{
    struct traffic all[MAX_TRAFFIC];
    int count = list_traffic(p, all);
    json_begin_array(w, "traffic", JSON_INLINE);
    for (int i = 0; i < count; i++) {
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "group", all[i].group);
        json_write_int(w, "ranks", all[i].ranks);
        json_write_string(w, "collective", all[i].collective);
        json_write_int(w, "calls", (int64_t)all[i].calls);
        json_write_int(w, "bytes", (int64_t)all[i].bytes);
        json_end_object(w);
    }
    json_end_array(w);
}

/* A part of a step's time. */
struct time_part {
    const char *name; /* in JSON */
    const char *text; /* in the table; NULL: exposed communication of group `name` */
    double seconds;
};
enum { MAX_PARTS = GROUP_COUNT + 5 };

/* Lists the parts that take time; returns their number. */
static int list_parts(const struct estimate *e, struct time_part all[MAX_PARTS])
{
    int count = 0;
    all[count++] = (struct time_part){"matmul", "matmul", e->matmul_s};
    all[count++] = (struct time_part){"memory", "memory-bound operations", e->memory_s};
    for (enum group g = 0; g < GROUP_COUNT; g++)
        if (e->exposed_s[g] > 0)
            all[count++] = (struct time_part){mesh_group_name(g), NULL, e->exposed_s[g]};
    if (e->host_s > 0)
        all[count++] = (struct time_part){"host", "exposed copies to and from the host", e->host_s};
    if (e->bubble_s > 0)
        all[count++] = (struct time_part){"bubble", "pipeline bubble", e->bubble_s};
    all[count++] = (struct time_part){"update", "gradient norm and optimizer", e->update_s};
    return count;
}

static void write_estimate(const struct planning *p, struct json_writer *w)
{
    struct time_part parts[MAX_PARTS];
    int count = list_parts(&p->estimate, parts);
    enum resource limit = fits(p) ? p->estimate.limit : RESOURCE_memory_bytes;
    json_begin_object(w, "estimate", JSON_INLINE);
    json_write_string(w, "hardware", p->hardware.name);
    json_begin_object(w, "seconds", JSON_INLINE);
    for (int i = 0; i < count; i++) json_write_format(w, parts[i].name, "%.6g", parts[i].seconds);
    json_end_object(w);
    json_write_format(w, "tokens_per_second_per_rank", "%.6g", tokens_per_second(p));
    json_write_format(w, "mfu", "%.6g", mfu(p));
    json_write_string(w, "limit", estimate_resource_name(limit));
    json_write_format(w, "saved", "%.6g", p->estimate.saved);
    json_end_object(w);
}

static void write_bytes(const char *name, const size_t bytes[MEMORY_COUNT], struct json_writer *w)
{
    json_begin_object(w, name, JSON_INLINE);
    for (enum memory_kind i = 0; i < MEMORY_COUNT; i++)
        json_write_int(w, memory_plan_name(i), (int64_t)bytes[i]);
    json_end_object(w);
}

static void write_rank(int rank, const struct memory_plan *m, struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "rank", rank);
    write_bytes("memory_bytes", m->bytes, w);
    json_write_int(w, "total", (int64_t)memory_plan_total(m));
    write_bytes("host_memory_bytes", m->host, w);
    json_write_int(w, "host_total", (int64_t)memory_plan_host_total(m));
    json_end_object(w);
}

/* What a rank has, and whether the run fits; host memory that is unknown is 0. */
static void write_available(const struct planning *p, struct json_writer *w)
{
    json_begin_object(w, "available", JSON_INLINE);
    json_write_format(w, "memory_bytes", "%.0f", p->hardware.memory_bytes);
    json_write_format(w, "host_memory_bytes", "%.0f", host_available(p));
    json_write_bool(w, "fits", fits(p));
    json_end_object(w);
}

static void write_ramp(const struct planning *p, struct json_writer *w)
{
    if (!p->ramp.increment) return;
    const struct ramp_phase phase = find_ramp_phase(p);
    json_begin_object(w, "batch_ramp", JSON_INLINE);
    json_write_int(w, "steps", phase.steps);
    json_write_int(w, "rows", phase.rows);
    json_write_format(w, "seconds", "%.6g", phase.seconds);
    json_write_format(w, "first_step_seconds", "%.6g", p->ramp_step_s);
    json_end_object(w);
}

static void print_ramp(const struct planning *p)
{
    struct text t = {0};
    if (!p->ramp.increment) return;
    const struct ramp_phase phase = find_ramp_phase(p);
    batch_ramp_describe(&p->ramp, &t);
    text_addf(&t, ": %s, ", counted_format(phase.steps, "step").text);
    console_duration(&t, phase.seconds);
    printf("batch ramp    %s\n", t.data);
    text_release(&t);
}

static void print_json(const struct planning *p)
{
    enum { PRINTED_BYTES = 1 << 16 };
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "data_stage", (int64_t)p->memory.data_stage);
    json_write_int(&w, "parameters", p->parameters);
    json_write_format(&w, "flops_per_token", "%.0f", p->flops_per_token);
    json_write_format(&w, "step_seconds", "%.6g", p->estimate.step_s);
    write_ramp(p, &w);
    json_write_format(&w, "checkpoint_bytes", "%.0f", p->checkpoint_bytes);
    write_estimate(p, &w);
    write_traffic(p, &w);
    write_available(p, &w);
    json_begin_array(&w, "ranks", JSON_INLINE);
    for (int rank = 0; rank < p->ranks; rank++) { /* the ranks of a stage use equal memory */
        write_rank(rank, &p->memory.of_stage[rank / (p->ranks / p->memory.stages)].plan, &w);
        if (t.len < PRINTED_BYTES) continue;
        fwrite(t.data, 1, t.len, stdout); /* the text of a million ranks would fill a gigabyte */
        text_clear(&t);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

static void print_estimate(const struct planning *p)
{
    const struct hardware *h = &p->hardware;
    struct time_part parts[MAX_PARTS];
    int count = list_parts(&p->estimate, parts);
    printf("step time on %s (per rank: %s):\n", h->name, h->text);
    for (int i = 0; i < count; i++) {
        const struct time_part *part = &parts[i];
        if (part->text)
            printf("  %11s    %s\n", console_step_time(part->seconds).text, part->text);
        else
            printf("  %11s    exposed communication (%s)\n", console_step_time(part->seconds).text,
                   part->name);
    }
    struct text rate = {0};
    if (tokens_per_second(p) < 999.5)
        text_addf(&rate, "%.3g", tokens_per_second(p));
    else
        console_thousands(&rate, tokens_per_second(p));
    printf("  %11s    total: %s tokens/s per rank, MFU %.1f%%\n",
           console_step_time(p->estimate.step_s).text, rate.data, 100 * mfu(p));
    text_release(&rate);
    printf("bottleneck    ");
    if (!fits(p))
        printf("%s%s; then ", fits_host(p) ? "" : "on the host ",
               estimate_resource_advice(RESOURCE_memory_bytes));
    printf("%s would save %.0f%% of the step time\n", estimate_resource_advice(p->estimate.limit),
           100 * p->estimate.saved);
}

static void print_traffic(const struct planning *p)
{
    struct traffic all[MAX_TRAFFIC];
    int count = list_traffic(p, all);
    double most = 0;
    for (int i = 0; i < count; i++) most = fmax(most, (double)all[i].bytes);
    const struct byte_unit unit = byte_size_unit(most);
    if (count) printf("received per rank and step:\n");
    for (int i = 0; i < count; i++)
        printf("  %9.3f %s  %-15s %s, %d ranks (%s)\n", (double)all[i].bytes / unit.bytes,
               unit.name, all[i].collective, counted_format((int64_t)all[i].calls, "call").text,
               all[i].ranks, all[i].group);
}

static void print_mesh(const struct planning *p)
{
    printf("ranks         %d%s", p->ranks, p->ranks > 1 ? ":" : "");
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (p->memory.machine.mesh.degree[a] > 1)
            printf(" %s %d", mesh_axis_name(a), p->memory.machine.mesh.degree[a]);
    printf("\n");
}

/* Without the end of the last line. */
static void print_categories(const size_t bytes[MEMORY_COUNT], double total)
{
    const struct byte_unit unit = byte_size_unit(total);
    for (enum memory_kind i = 0; i < MEMORY_COUNT; i++)
        if (bytes[i])
            printf("  %9.3f %s  %-15s %s\n", (double)bytes[i] / unit.bytes, unit.name,
                   memory_plan_name(i), memory_plan_text(i));
    printf("  %9.3f %s  total", total / unit.bytes, unit.name);
}

static void print_memory(const struct planning *p)
{
    const struct memory_plan *m = &run_memory_fullest(&p->memory)->plan;
    double total = (double)memory_plan_total(m), have = p->hardware.memory_bytes;
    printf("memory per rank%s:\n", p->memory.stages > 1 ? " of the stage that needs the most" : "");
    print_categories(m->bytes, total);
    printf(", %.1f%% of %s available\n", 100 * total / have, byte_size_format(have).text);
}

/* Only of ranks with a GPU: the host memory of the same stage. */
static void print_host_memory(const struct planning *p)
{
    const struct memory_plan *m = &run_memory_fullest(&p->memory)->plan;
    double total = (double)memory_plan_host_total(m), have = host_available(p);
    if (!(total > 0)) return;
    printf("host memory per rank:\n");
    print_categories(m->host, total);
    if (have > 0)
        printf(", %.1f%% of %s available", 100 * total / have, byte_size_format(have).text);
    printf("\n");
}

static int padded_vocabulary(const struct planning *p, int tp)
{
    struct model_shape slice = model_shape_slice(&p->shape, 0, tp);
    return tp * model_shape_vocab(&slice, 0).rows;
}

static void print_table(const struct planning *p)
{
    const struct training_config *c = &p->config->training;
    double tokens = tokens_of_step(p);
    int tp = p->memory.machine.mesh.degree[AXIS_tp], padded = padded_vocabulary(p, tp);
    struct text parameters = {0};
    console_thousands(&parameters, (double)p->parameters);
    printf("model         %s parameters: %s, width %d, %s (%d KV), feed-forward %d, "
           "vocabulary %d%s",
           parameters.data, counted_format(p->shape.L, "block").text, p->shape.D,
           counted_format(p->shape.H, "head").text, p->shape.G, p->shape.F, p->shape.V,
           p->shape.tied ? ", tied" : "");
    text_release(&parameters);
    if (padded > p->shape.V) printf(", padded to %d", padded);
    printf("\n");
    print_mesh(p);
    if (p->num_stages > 1)
        printf("data stage    %zu, steps %lld to %lld, needs the most memory of %zu\n",
               p->memory.data_stage, (long long)p->stage.begin + 1, (long long)p->stage.end,
               p->num_stages);
    printf("step          %s of %lld tokens, %.4g TFLOP\n",
           counted_format(llround(tokens / (double)c->seq_len), "row").text, (long long)c->seq_len,
           p->flops_per_token * tokens / 1e12);
    print_ramp(p);
    printf("checkpoint    %s\n", byte_size_format(p->checkpoint_bytes).text);
    print_memory(p);
    print_host_memory(p);
    print_traffic(p);
    print_estimate(p);
}

static const struct usage usage = {
    "plan",
    {{NULL,
      {USAGE_ONE(FILE, "CONFIG"), USAGE_FLAGS("[--ranks N] [--fit|--search]"), USAGE_SETTINGS}}},
    "Dry run: memory by category, FLOPs, step time and checkpoint size.  Trains nothing.\n"
    "Memory is measured by a sizing pass of the step's own code, so the figures are exact, except\n"
    "what a GPU's libraries allocate.  They depend on the vocabulary: without the tokenizer, set\n"
    "model.vocab_size, or data.tokenizer= to take the flavor's.  With device.hardware it lists\n"
    "the GPU's memory and, separately, the host's.  Of a run with several data stages it shows "
    "the\n"
    "one that needs the most memory.",
};

enum status command_plan(int argc, char **argv)
{
    bool json = false, is_fit = false, is_search = false;
    int64_t requested = PREFLIGHT_FEWEST_RANKS;
    const struct flag flags[] = {
        {"ranks", FLAG_INT(1, PREFLIGHT_MAX_RANKS), &requested,
         "number of ranks of the run (default: the product of the parallel degrees)"},
        {"fit", FLAG_SWITCH, &is_fit,
         "find options with which the run fits the memory of its ranks, with the time and the"
         " precision that each costs"},
        {"search", FLAG_SWITCH, &is_search,
         "find the ten best layouts of N ranks: degrees of parallelism, pipeline schedule,"
         " microbatches, activation checkpointing, sharding; keeps the rows of a step"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (is_fit && is_search) FAIL(USAGE, "plan: --fit and --search exclude each other");
    struct config c;
    struct planning p = {.config = &c};
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&c, a.words[0], a.settings, a.num_settings));
    TRY_OUT(preflight_ranks(&c, requested, &p.ranks));
    if (is_search) {
        TRY_OUT(search(&p, json));
        goto out;
    }
    TRY_OUT(config_check(&c, p.ranks));
    TRY_OUT(plan(&p));
    if (is_fit)
        TRY_OUT(fit(&p, json));
    else if (json)
        print_json(&p);
    else
        print_table(&p);
out:
    tokenizer_close(p.tokenizer);
    run_memory_release(&p.memory);
    data_stages_close(&p.stage);
    config_release(&c);
    return st;
}
