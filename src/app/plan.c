// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/machine.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "metrics/metrics.h"
#include "ops/linear.h"
#include "train/run.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

struct planning {
    const struct config *config;
    int ranks;
    struct machine machine;
    struct tokenizer *tokenizer;
    struct model_shape shape;
    int64_t parameters;
    struct memory_plan memory;
    size_t checkpoint_bytes;
    double flops_per_token, step_seconds;
};

/* What reading ahead holds; the data need not be there to plan a run. */
static void plan_data(struct planning *p)
{
    struct source_config one;
    struct data_config data = run_data_config(p->config, &one);
    struct loader_options o =
        run_loader_options(p->config, &p->machine.mesh, &data, p->tokenizer, p->shape.V);
    struct loader *loader = NULL;
    if (loader_open(&loader, &o)) {
        log_line(LOG_WARN, "memory of the data is not counted: %s", status_message());
        return;
    }
    p->memory.bytes[MEMORY_data] = (size_t)loader_memory_bytes(loader);
    loader_close(loader);
}

/* FLOPs a second of a product as wide as the model's feed-forward layer, on this machine. */
static enum status measured_rate(struct planning *p, double *rate)
{
    enum dtype dtype = strcmp(p->config->training.mixed_precision_param, "float32") ? BF16 : F32;
    struct linear l = {.N = 512,
                       .D = p->shape.D < 2048 ? p->shape.D : 2048,
                       .F = p->shape.F < 4096 ? p->shape.F : 4096,
                       .dtype = dtype};
    struct arena a = {0};
    struct queue *on = p->machine.on;
    size_t sizes[] = {(size_t)l.N * (size_t)l.D, (size_t)l.F * (size_t)l.D,
                      (size_t)l.N * (size_t)l.F};
    enum status st = STATUS_OK;
    TRY_OUT(arena_init(&a, (sizes[0] + sizes[1] + sizes[2]) * 4 + 4 * ARENA_ALIGN));
    struct linear_fwd io;
    io.x_ND = arena_take(&a, sizes[0], 4);
    io.w_FD = arena_take(&a, sizes[1], 4);
    io.y_NF = arena_take(&a, sizes[2], 4);
    arena_release(&on->scratch);
    on->measuring = true;
    TRY_OUT(linear_forward(p->machine.ops, &l, &io, on));
    on->measuring = false;
    size_t scratch = on->scratch.peak;
    TRY_OUT(arena_init(&on->scratch, scratch));
    double best = 1e9;
    for (double begin = clock_monotonic_s(); clock_monotonic_s() - begin < 0.2;) {
        double start = clock_monotonic_s();
        TRY_OUT(linear_forward(p->machine.ops, &l, &io, on));
        double seconds = clock_monotonic_s() - start;
        if (seconds < best) best = seconds;
    }
    *rate = 2.0 * l.N * l.D * l.F / best;
out:
    on->measuring = false;
    arena_release(&on->scratch);
    arena_release(&a);
    return st;
}

/* Of all ranks. */
static double tokens_of_step(const struct planning *p)
{
    const struct mesh *m = &p->machine.mesh;
    return (double)trainer_rows(p->config, m) * trainer_readers(m) *
           (double)p->config->training.seq_len;
}

static enum status plan(struct planning *p)
{
    const struct config *c = p->config;
    const char *path = run_tokenizer_path(c);
    struct layout layout;
    double rate;
    TRY(machine_open(&p->machine, &c->device));
    groups_close(&p->machine.groups);
    TRY(mesh_resolve(&p->machine.mesh, &c->parallelism, 0, p->ranks));
    groups_plan(&p->machine.groups, &p->machine.mesh);
    if (path[0]) TRY(tokenizer_open(&p->tokenizer, path, &c->tokenizer));
    TRY(model_shape_resolve(&p->shape, &c->model,
                            p->tokenizer ? tokenizer_vocab_size(p->tokenizer) : 0));
    TRY(config_fit(c, &p->shape, &p->machine.mesh));
    TRY(trainer_plan(c, &p->shape, &p->machine, &p->memory));
    TRY(measured_rate(p, &rate));
    p->memory.bytes[MEMORY_program] = (size_t)memory_resident_bytes();
    if (c->checkpoint.enable && !c->checkpoint.load_only)
        p->memory.bytes[MEMORY_checkpoint] += checkpoint_save_bytes(p->ranks);
    plan_data(p);
    layout_init(&layout, &p->shape, 1);
    p->parameters = layout.parameters;
    p->checkpoint_bytes = (size_t)layout.parameters * 3 * sizeof(float);
    layout_release(&layout);
    p->flops_per_token = model_flops_per_token(&p->shape, (int)c->training.seq_len);
    p->step_seconds = p->flops_per_token * tokens_of_step(p) / p->ranks / rate;
    return STATUS_OK;
}

/* Calls `each` for what a rank receives in a step, group by group. */
static void each_traffic(const struct planning *p,
                         void (*each)(struct text *t, const char *group, const char *kind, int size,
                                      uint64_t calls, uint64_t bytes),
                         struct text *t)
{
    for (enum group g = 0; g < GROUP_COUNT; g++)
        for (enum transfer_kind k = 0; k < TRANSFER_COUNT; k++) {
            const struct comm *c = &p->machine.groups.of[g];
            uint64_t calls = c->counts->calls[k];
            if (calls && c->size > 1)
                each(t, group_name(g), transfer_name(k), c->size, calls, c->counts->bytes[k]);
        }
}

static void add_traffic(struct text *t, const char *group, const char *kind, int size,
                        uint64_t calls, uint64_t bytes)
{
    text_addf(t, "%s{\"group\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"calls\": %llu, ",
              t->data[t->len - 1] == '[' ? "" : ", ", group, size, kind, (unsigned long long)calls);
    text_addf(t, "\"bytes\": %llu}", (unsigned long long)bytes);
}

static void print_json(const struct planning *p)
{
    struct text t = {0};
    text_addf(&t,
              "{\"parameters\": %lld, \"flops_per_token\": %.0f, \"step_seconds\": %.6g, "
              "\"checkpoint_bytes\": %zu, \"traffic\": [",
              (long long)p->parameters, p->flops_per_token, p->step_seconds, p->checkpoint_bytes);
    each_traffic(p, add_traffic, &t);
    text_adds(&t, "], \"ranks\": [");
    for (int rank = 0; rank < p->ranks; rank++) { /* all of them hold alike */
        text_addf(&t, "%s{\"rank\": %d, \"memory_bytes\": {", rank ? ", " : "", rank);
        for (enum memory_kind i = 0; i < MEMORY_COUNT; i++)
            text_addf(&t, "%s\"%s\": %zu", i ? ", " : "", memory_name(i), p->memory.bytes[i]);
        text_addf(&t, "}, \"total\": %zu}", memory_total(&p->memory));
    }
    printf("%s]}\n", t.data);
    text_release(&t);
}

static void add_traffic_line(struct text *t, const char *group, const char *kind, int size,
                             uint64_t calls, uint64_t bytes)
{
    text_addf(t, "  %9.3f GiB  %-15s %llu x over %d ranks (%s)\n", (double)bytes / (1 << 30), kind,
              (unsigned long long)calls, size, group);
}

static void print_mesh(const struct planning *p)
{
    if (p->ranks == 1) return;
    printf("ranks         %d:", p->ranks);
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (p->machine.mesh.degree[a] > 1)
            printf(" %s %d", axis_name(a), p->machine.mesh.degree[a]);
    printf("\n");
}

static void print_table(const struct planning *p)
{
    const struct training_config *c = &p->config->training;
    double gib = 1 << 30, total = (double)memory_total(&p->memory);
    double have = (double)memory_total_bytes(), tokens = tokens_of_step(p);
    struct text traffic = {0};
    printf("model         %lld parameters: %d blocks, width %d, %d heads over %d, feed-forward %d, "
           "vocabulary %d%s\n",
           (long long)p->parameters, p->shape.L, p->shape.D, p->shape.H, p->shape.G, p->shape.F,
           p->shape.V, p->shape.tied ? ", tied" : "");
    print_mesh(p);
    printf("step          %.0f rows of %lld tokens, %.4g TFLOP, about %.3g s here (at the speed of "
           "one measured product%s)\n",
           tokens / (double)c->seq_len, (long long)c->seq_len, p->flops_per_token * tokens / 1e12,
           p->step_seconds, p->ranks > 1 ? " on each rank; what moves is not counted" : "");
    printf("checkpoint    %.3f GiB\nmemory of a rank:\n", (double)p->checkpoint_bytes / gib);
    for (enum memory_kind i = 0; i < MEMORY_COUNT; i++)
        if (p->memory.bytes[i])
            printf("  %9.3f GiB  %-15s %s\n", (double)p->memory.bytes[i] / gib, memory_name(i),
                   memory_text(i));
    printf("  %9.3f GiB  total, %.1f%% of the %.2f GiB here\n", total / gib, 100 * total / have,
           have / gib);
    each_traffic(p, add_traffic_line, &traffic);
    if (traffic.len) printf("received by a rank in a step:\n%s", traffic.data);
    text_release(&traffic);
}

enum status command_plan(int argc, char **argv)
{
    bool json = false;
    int64_t ranks = 1;
    const struct flag flags[] = {
        {"ranks", FLAG_INT, &ranks, "ranks of the run (default 1)"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "plan CONFIG [--ranks N] [section.key=value ...]\n\n"
        "Dry run: memory by category, FLOPs, step time and checkpoint size; nothing "
        "is trained.\nMemory is counted by the code of a step itself, so it is exact "
        "before it is used.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    if (ranks < 1 || ranks > 1 << 24)
        FAIL(USAGE, "--ranks: %lld is not positive", (long long)ranks);
    struct config c;
    struct planning p = {.config = &c};
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&c, a.words[0], a.settings, a.num_settings));
    TRY_OUT(config_check(&c, (int)ranks));
    p.ranks = (int)ranks;
    TRY_OUT(plan(&p));
    if (json)
        print_json(&p);
    else
        print_table(&p);
out:
    tokenizer_close(p.tokenizer);
    machine_close(&p.machine);
    config_release(&c);
    return st;
}
