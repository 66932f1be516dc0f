// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/data_plan.h"
#include "app/deep_check.h"
#include "app/preflight.h"
#include "app/run_memory.h"
#include "base/json.h"
#include "base/log.h"
#include "config/data_stages.h"
#include "train/inputs.h"
#include "train/start.h"
#include "train/trainer.h"

#include <stdio.h>

static const char usage[] =
    "check CONFIG [--ranks N] [--deep] [section.key=value ...]\n\n"
    "Checks that a configuration is consistent and fits the number of ranks, that its\n"
    "tokenizer and data can be read, that its starting weights have the model's shapes, and\n"
    "that a rank's memory fits the device, in each data stage.  Prints what each data stage will\n"
    "read of each source, estimated from about 1 MiB of it, and warns where a source is read more\n"
    "than once.  Trains nothing.\n\n"
    "Without device.hardware, memory is compared with that of this machine, where the run may\n"
    "never run: too little is an error only with --ranks of at most device.node_ranks, else a\n"
    "warning.\n\n"
    "With --deep it reads all of the training and validation data as training would, compares\n"
    "token files with the checksums that `prepare` wrote, and lists the first records that\n"
    "training cannot use; exit code 65 if there are any, unless data.on_bad_record = \"skip\"\n"
    "and they are within data.bad_record_limit.\n\n"
    "Data and weights on the Hugging Face Hub are not downloaded.  If the cache does not have\n"
    "them, or the Hub cannot be reached, a line on stderr says that they were not checked, and\n"
    "the exit code is 0.";

/* Whether the device that the run will use is known: named, or this machine. */
static bool device_is_known(const struct config *c, int64_t requested_ranks)
{
    const struct hardware h = device_config_hardware(&c->device);
    return h.memory_bytes > 0 || (requested_ranks > 0 && (double)requested_ranks <= h.node_ranks);
}

static enum status check_memory(const struct config *c, const struct preflight *p, int ranks,
                                bool is_error)
{
    const double gib = 1 << 30;
    struct run_memory m;
    char stage[40] = "";
    double has = 0;
    enum status st = STATUS_OK;
    TRY_OUT(run_memory_plan_run(&m, c, p->tokenizer, ranks));
    if (data_stages_count(c) > 1) snprintf(stage, sizeof stage, " in data stage %zu", m.data_stage);
    TRY_OUT(run_memory_available(&m, c, &has));
    double needed = (double)run_memory_needed(&m);
    if (needed > has && !is_error)
        log_line(LOG_WARN,
                 "a rank requires %.2f GiB%s, and this machine has %.2f GiB per rank; set "
                 "device.hardware to check against another machine",
                 needed / gib, stage, has / gib);
    if (needed > has && is_error)
        FAIL_OUT(CONFIG,
                 "not enough memory: a rank requires %.2f GiB%s, %s has %.2f GiB per rank; "
                 "`llamero plan` shows memory by category; --allow-oversubscribe skips this check",
                 needed / gib, stage,
                 c->device.hardware == HARDWARE_cpu ? "this machine"
                                                    : device_config_hardware(&c->device).name,
                 has / gib);
out:
    run_memory_release(&m);
    return st;
}

static void print_json(enum status st, int ranks, const struct preflight *p,
                       const struct deep_check *deep, const struct data_plan *plan)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_bool(&w, "ok", !st);
    json_write_string(&w, "message", st ? status_message() : "");
    json_write_int(&w, "ranks", ranks);
    json_write_bool(&w, "data_checked", p->data_checked);
    if (plan->num_stages) data_plan_write(plan, &w);
    if (deep->has_run) {
        json_write_int(&w, "records", (int64_t)deep->num_read);
        json_write_int(&w, "bad_records", (int64_t)deep->num_bad);
        json_write_int(&w, "checksums", (int64_t)deep->num_sums);
    }
    json_end_object(&w);
    json_finish(&w);
    printf("%s\n", out.data);
    text_release(&out);
}

static void print_ramp(const struct config *c, const struct mesh *mesh)
{
    struct text t = {0};
    const struct batch_ramp r = batch_ramp_of(&c->training, config_step_rows(c, mesh));
    if (!r.increment) return;
    batch_ramp_describe(&r, &t);
    printf("batch ramp: %s; step %lld is the first full one\n", t.data,
           (long long)batch_ramp_steps_to(&r, 0, batch_ramp_full(&r)) + 1);
    text_release(&t);
}

static void print_plan(const struct data_plan *plan)
{
    struct text t = {0};
    text_adds(&t, "");
    data_plan_describe(plan, &t);
    fputs(t.data, stdout);
    text_release(&t);
}

static void print_padding(const struct config *c, const struct mesh *mesh)
{
    struct text t = {0};
    inputs_describe_padding(c, mesh, &t);
    if (t.len) printf("%s\n", t.data);
    text_release(&t);
}

enum status command_check(int argc, char **argv)
{
    bool json = false, oversubscribe = false, is_deep = false;
    int64_t requested = -1;
    int ranks = 0;
    const struct flag flags[] = {
        {"ranks", FLAG_INT, &requested,
         "number of ranks of the run (default: the product of the parallel degrees)"},
        {"deep", FLAG_SWITCH, &is_deep, "read all data, and compare checksums"},
        {"allow-oversubscribe", FLAG_SWITCH, &oversubscribe,
         "accept a run that needs more memory than a rank has"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 1, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    struct config c;
    struct preflight p = {0};
    struct deep_check deep = {0};
    struct data_plan plan = {0};
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) st = preflight_ranks(&c, requested, &ranks);
    if (!st) st = preflight(&p, &c, ranks);
    if (!st) st = start_check(&c, &p.shape, true);
    if (!st && !oversubscribe) st = check_memory(&c, &p, ranks, device_is_known(&c, requested));
    if (!st) st = data_plan_make(&plan, &c, &p);
    if (!st) data_plan_warn(&plan);
    if (!st && is_deep) st = deep_check(&deep, &c, &p);
    if (json) {
        print_json(st, ranks, &p, &deep, &plan);
    } else if (!st) {
        printf("%s is valid for %d rank%s: %d blocks of width %d, %lld steps of %lld tokens\n",
               a.words[0], ranks, ranks == 1 ? "" : "s", p.shape.L, p.shape.D,
               (long long)c.training.steps,
               (long long)(c.training.seq_len * config_step_rows(&c, &p.mesh)));
        print_ramp(&c, &p.mesh);
        print_padding(&c, &p.mesh);
        print_plan(&plan);
        if (is_deep)
            printf("data: %llu records in %llu source%s, %llu bad; %llu with checksums\n",
                   (unsigned long long)deep.num_read, (unsigned long long)deep.num_sources,
                   deep.num_sources == 1 ? "" : "s", (unsigned long long)deep.num_bad,
                   (unsigned long long)deep.num_sums);
    }
    data_plan_release(&plan);
    preflight_release(&p);
    config_release(&c);
    return st;
}
