// SPDX-License-Identifier: Apache-2.0
#include "app/plan_search.h"

#include "base/byte_size.h"
#include "base/json.h"
#include "base/log.h"
#include "config/data_stages.h"
#include "metrics/console.h"
#include "model/model.h"
#include "perf/hardware_probe.h"
#include "perf/layout_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double TOLERANCE = 0.005;
enum { MAX_SIMULATIONS = 1500 };

/* What limits a step, in a word; the order of RESOURCE_LIST. */
static const char *limit_word(enum resource r)
{
    static const char *const words[RESOURCE_COUNT] = {
        [RESOURCE_matmul] = "compute",   [RESOURCE_memory_rate] = "memory",
        [RESOURCE_node_links] = "links", [RESOURCE_network] = "network",
        [RESOURCE_host_link] = "host",   [RESOURCE_latency] = "latency",
        [RESOURCE_pipeline] = "bubble",  [RESOURCE_memory_bytes] = "memory"};
    return words[r];
}

static double tokens_per_second(const struct layout_search *s, const struct found_layout *f)
{
    double tokens = (double)s->all.step_rows * (double)s->all.config->training.seq_len;
    return tokens / f->cost.estimate.step_s / s->all.ranks;
}

static double mfu(const struct layout_search *s, const struct found_layout *f)
{
    double flops = model_flops_per_token(s->all.shape, (int)s->all.config->training.seq_len);
    double peak = hardware_probe_mfu_peak(&s->model->hardware, s->all.config);
    return tokens_per_second(s, f) * flops / peak;
}

/* --- why a layout beats the next --- */

struct time_saving {
    char what[64];
    double seconds; /* that the first layout saves */
};

static void consider(struct time_saving *most, double a, double b, const char *format,
                     const char *name)
{
    if (b - a <= most->seconds) return;
    most->seconds = b - a;
    snprintf(most->what, sizeof most->what, format, name); /* NOLINT: both are ours */
}

/* The part of the step of which `a` saves most compared with `b`. */
static struct time_saving largest_difference(const struct found_layout *a,
                                             const struct found_layout *b)
{
    const struct estimate *x = &a->cost.estimate, *y = &b->cost.estimate;
    bool recomputes_less = a->choice.recomputation < b->choice.recomputation;
    struct time_saving most = {.what = "the sum of small differences"};
    consider(&most, x->matmul_s, y->matmul_s, "less %s",
             recomputes_less ? "recomputation" : "work in the slowest stage");
    consider(&most, x->memory_s, y->memory_s, "less %s", "memory traffic");
    for (enum group g = 0; g < GROUP_COUNT; g++)
        consider(&most, x->exposed_s[g], y->exposed_s[g], "less exposed communication (%s)",
                 mesh_group_name(g));
    consider(&most, x->host_s, y->host_s, "less %s", "exposed copies to and from the host");
    consider(&most, x->bubble_s, y->bubble_s, "a smaller %s", "pipeline bubble");
    consider(&most, x->update_s, y->update_s, "a shorter %s", "optimizer update");
    return most;
}

static void describe_reason(const struct layout_search *s, int i, struct text *out)
{
    const struct found_layout *a = &s->best[i], *b = a + 1;
    struct time_saving d = largest_difference(a, b);
    double saved = b->cost.estimate.step_s - a->cost.estimate.step_s;
    text_addf(out, "%s faster than %d: %s", console_step_time(saved).text, i + 2, d.what);
    if (d.seconds > saved * 1.01) text_addf(out, " (%s)", console_step_time(d.seconds).text);
}

/* --- output --- */

static struct byte_unit memory_unit(const struct layout_search *s)
{
    double most = 0;
    for (int i = 0; i < s->count; i++) most = fmax(most, s->best[i].cost.memory_bytes);
    return byte_size_unit(most);
}

static void print_row(const struct layout_search *s, int i)
{
    const struct found_layout *f = &s->best[i];
    const struct layout_choice *x = &f->choice;
    bool is_sharded = x->degree[AXIS_dp_shard] * x->degree[AXIS_cp] > 1;
    printf("%2d %3d %3d %3d %5d %4d %4d %6d %-9s %-5s %6.1f %8.4g %s\n", i + 1, x->degree[AXIS_tp],
           x->degree[AXIS_pp], x->degree[AXIS_cp], x->degree[AXIS_dp_shard],
           x->degree[AXIS_dp_replicate], x->rows, x->chunks,
           layout_choice_recomputation_name(x->recomputation),
           is_sharded ? layout_choice_sharding_name(x->sharding) : "-",
           f->cost.memory_bytes / memory_unit(s).bytes, f->cost.estimate.step_s,
           limit_word(f->cost.estimate.limit));
    if (i + 1 == s->count) return;
    struct text why = {0};
    describe_reason(s, i, &why);
    printf("   %s\n", why.data);
    text_release(&why);
}

/* One setting a line. */
static void print_settings(const struct layout_search *s)
{
    struct text t = {0};
    layout_choice_settings(&s->best[0].choice, &s->all, &t);
    printf("settings of layout 1:\n");
    for (const char *word = t.data; *word;) {
        size_t length = strcspn(word, " ");
        printf("  %.*s\n", (int)length, word);
        word += length + (word[length] == ' ');
    }
    text_release(&t);
}

static void print_table(const struct layout_search *s)
{
    const struct found_layout *first = &s->best[0];
    printf("best layouts of %d %s, %lld rows of %lld tokens per step:\n", s->all.ranks,
           s->model->hardware.name, (long long)s->all.step_rows,
           (long long)s->all.config->training.seq_len);
    printf(" #  tp  pp  cp shard repl rows chunks recompute FSDP  %6s   step s limit\n",
           memory_unit(s).name);
    for (int i = 0; i < s->count; i++) print_row(s, i);
    printf("layout 1: %.5g tokens/s per rank, MFU %.1f%%\n", tokens_per_second(s, first),
           100 * mfu(s, first));
    printf("%lld layouts considered: %lld exceed %s or break a rule\n", (long long)s->considered,
           (long long)s->too_large, byte_size_format(s->model->hardware.memory_bytes).text);
    if (s->is_cut)
        printf("%lld simulated, then stopped: others may be faster\n", (long long)s->simulated);
    else
        printf("%lld simulated: times are within %.1f%% of the best\n", (long long)s->simulated,
               100 * s->tolerance);
    print_settings(s);
}

static void write_seconds(const struct estimate *e, struct json_writer *w)
{
    json_begin_object(w, "seconds", JSON_INLINE);
    json_write_format(w, "matmul", "%.6g", e->matmul_s);
    json_write_format(w, "memory", "%.6g", e->memory_s);
    for (enum group g = 0; g < GROUP_COUNT; g++)
        if (e->exposed_s[g] > 0) json_write_format(w, mesh_group_name(g), "%.6g", e->exposed_s[g]);
    if (e->host_s > 0) json_write_format(w, "host", "%.6g", e->host_s);
    json_write_format(w, "bubble", "%.6g", e->bubble_s);
    json_write_format(w, "update", "%.6g", e->update_s);
    json_end_object(w);
}

static void write_layout(const struct layout_search *s, int i, struct json_writer *w)
{
    const struct found_layout *f = &s->best[i];
    const struct layout_choice *x = &f->choice;
    struct text settings = {0}, why = {0};
    json_begin_object(w, NULL, JSON_INLINE);
    for (enum axis a = 0; a < AXIS_COUNT; a++) json_write_int(w, mesh_axis_key(a), x->degree[a]);
    json_write_int(w, "microbatch_rows", x->rows);
    json_write_int(w, "stages_per_rank", x->chunks);
    json_write_string(w, "recompute", layout_choice_recomputation_name(x->recomputation));
    json_write_string(w, "sharding", layout_choice_sharding_name(x->sharding));
    json_write_format(w, "memory_bytes", "%.0f", f->cost.memory_bytes);
    json_write_format(w, "host_memory_bytes", "%.0f", f->cost.host_bytes);
    json_write_format(w, "step_seconds", "%.6g", f->cost.estimate.step_s);
    write_seconds(&f->cost.estimate, w);
    json_write_format(w, "tokens_per_second_per_rank", "%.6g", tokens_per_second(s, f));
    json_write_format(w, "mfu", "%.6g", mfu(s, f));
    json_write_string(w, "limit", estimate_resource_name(f->cost.estimate.limit));
    if (i + 1 < s->count) describe_reason(s, i, &why);
    if (why.len) json_write_string(w, "beats_next", why.data);
    layout_choice_settings(x, &s->all, &settings);
    json_write_string(w, "settings", settings.data);
    json_end_object(w);
    text_release(&settings), text_release(&why);
}

static void print_json(const struct layout_search *s)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "ranks", s->all.ranks);
    json_write_string(&w, "hardware", s->model->hardware.name);
    json_write_int(&w, "step_rows", s->all.step_rows);
    json_write_int(&w, "considered", s->considered);
    json_write_int(&w, "too_large", s->too_large);
    json_write_int(&w, "simulated", s->simulated);
    json_write_bool(&w, "stopped_early", s->is_cut);
    json_begin_array(&w, "layouts", JSON_INLINE);
    for (int i = 0; i < s->count; i++) write_layout(s, i, &w);
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

/* Rows of a step, which all layouts share: those of the configured layout if none are set. */
static enum status find_step_rows(const struct planned_run *r, int64_t *rows)
{
    const struct config *c = r->config;
    struct mesh mesh;
    *rows = c->training.global_batch_size;
    if (*rows > 0) return STATUS_OK;
    if (mesh_resolve(&mesh, &c->parallelism, 0, r->ranks))
        FAIL(CONFIG,
             "--search: the rows of a step depend on the layout, and [parallelism] does not suit "
             "%d ranks: set training.global_batch_size, which all layouts keep",
             r->ranks);
    *rows = config_step_rows(c, &mesh);
    return STATUS_OK;
}

static enum status fail_without_layout(const struct layout_search *s)
{
    if (!s->considered)
        FAIL(CONFIG,
             "--search: no layout of %d rank%s suits the model and %lld rows of %lld tokens: try "
             "another number of ranks, or a larger training.global_batch_size",
             s->all.ranks, s->all.ranks == 1 ? "" : "s", (long long)s->all.step_rows,
             (long long)s->all.config->training.seq_len);
    FAIL(CONFIG,
         "--search: none of %lld layouts of %d rank%s fits %s per rank on %s: use more ranks, "
         "or device.hardware with more memory",
         (long long)s->considered, s->all.ranks, s->all.ranks == 1 ? "" : "s",
         byte_size_format(s->model->hardware.memory_bytes).text, s->model->hardware.name);
}

enum status plan_search_print(const struct planned_run *r, bool json)
{
    struct run_memory memory;
    struct cost_model model;
    struct layout_search search = {.all = {r->config, r->shape, r->ranks, 0},
                                   .model = &model,
                                   .tolerance = TOLERANCE,
                                   .max_simulations = MAX_SIMULATIONS};
    enum status st = STATUS_OK;
    TRY(find_step_rows(r, &search.all.step_rows));
    if (data_stages_count(r->config) > 1)
        log_line(LOG_WARN, "--search: considers the first data stage, not data.stage");
    TRY_OUT(run_memory_open_model(&memory, r, &model));
    TRY_OUT(layout_search_run(&search));
    if (!search.count) TRY_OUT(fail_without_layout(&search));
    if (json)
        print_json(&search);
    else
        print_table(&search);
out:
    run_memory_release(&memory);
    return st;
}
