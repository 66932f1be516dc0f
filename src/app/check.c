// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/data_plan.h"
#include "app/deep_check.h"
#include "app/preflight.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/log.h"
#include "config/data_stages.h"
#include "config/no_effect.h"
#include "train/inputs.h"
#include "train/trainer.h"

#include <stdio.h>

static const struct usage usage = {
    "check",
    {{NULL, {USAGE_ONE(FILE, "CONFIG"), USAGE_FLAGS("[--ranks N] [--deep]"), USAGE_SETTINGS}}},
    "Checks what `train` checks before its first step, with the same messages and exit codes:\n"
    "that the configuration is consistent and fits the number of ranks; that the tokenizer, and\n"
    "the first records of all training and validation data, can be read; that initial weights, or\n"
    "the checkpoint to resume from, fit; that job.dump_folder can be written and has the space;\n"
    "and that a rank's memory fits the device, in each data stage.  Lists all problems.  Prints\n"
    "what each data stage will read of each source, estimated from about 1 MiB of it, and warns\n"
    "where a source is read more than once.  Trains nothing, and leaves nothing on disk.\n\n"
    "Of a checkpoint it compares file sizes, and names and shapes of tensors, but not the\n"
    "checksums of weights and moments: `checkpoint verify` does.  `train` does, too, and falls\n"
    "back to an older checkpoint if one is wrong.\n\n"
    "Without device.hardware, device and memory are those of this machine, where the run may\n"
    "never run: what it lacks is an error only with --ranks of at most device.node_ranks, else a\n"
    "warning.\n\n"
    "With --deep it reads all of the training and validation data as training would, compares\n"
    "token files with the checksums that `prepare` wrote, and lists the first records that\n"
    "training cannot use; exit code 65 if there are any, unless data.on_bad_record = \"skip\"\n"
    "and they are within data.bad_record_limit.\n\n"
    "Data and weights on the Hugging Face Hub are not downloaded.  If the cache does not have\n"
    "them, or the Hub cannot be reached, a line on stderr says that they were not checked, and\n"
    "the exit code is 0.",
};

/* Whether --ranks says that this machine can run them. */
static enum preflight_place place_of(const struct config *c, int64_t requested_ranks)
{
    const struct hardware h = device_config_hardware(&c->device);
    bool is_here = requested_ranks > 0 && (double)requested_ranks <= h.node_ranks;
    return is_here ? PREFLIGHT_HERE : PREFLIGHT_ELSEWHERE;
}

static void print_json(enum status st, int ranks, const struct preflight *p,
                       const struct deep_check *deep, const struct data_plan *plan)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_bool(&w, "ok", !st);
    json_write_string(&w, "message", st ? status_message() : "");
    json_begin_array(&w, "problems", JSON_INLINE);
    for (size_t i = 0; i < p->problems.count; i++)
        json_write_string(&w, NULL, p->problems.messages[i]);
    json_end_array(&w);
    json_write_int(&w, "ranks", ranks);
    json_write_int_or_null(&w, "resume_step", p->resume_step);
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

static void print_start(const struct config *c, const struct preflight *p)
{
    if (p->resume_step < 0) return;
    printf("resumes from step %lld in %s", (long long)p->resume_step, c->job.dump_folder);
    if (p->steps_done < p->resume_step)
        printf(" without lr_scheduler, so steps count from 0");
    else if (p->steps_done >= c->training.steps)
        printf(", so no step is left%s",
               p->has_only_model ? "" : ": increase training.steps to continue");
    struct text command = {0};
    text_adds(&command, "llamero checkpoint verify ");
    text_add_shell(&command, c->job.dump_folder);
    printf("\nchecksums of checkpoints were not compared; `%s` compares them\n", command.data);
    text_release(&command);
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

/* Also after a problem of another kind, or with the first records.  Returns the first failure. */
static enum status add_deep_check(struct deep_check *deep, const struct config *c,
                                  const struct preflight *p, enum status st)
{
    struct failure first = {0};
    if (st && !p->can_scan) return st;
    bool is_reported = st && status_is_reported();
    status_save(&first, st);
    enum status scanned = deep_check(deep, c, p);
    if (!first.status) return scanned;
    if (scanned) log_line(LOG_ERROR, "%s", status_message());
    status_restore(&first);
    if (is_reported) status_mark_reported();
    return st;
}

enum status command_check(int argc, char **argv)
{
    bool json = false, oversubscribe = false, is_deep = false;
    int64_t requested = PREFLIGHT_FEWEST_RANKS;
    int ranks = 0;
    const struct flag flags[] = {
        {"ranks", FLAG_INT(1, PREFLIGHT_MAX_RANKS), &requested,
         "number of ranks of the run (default: the product of the parallel degrees)"},
        {"deep", FLAG_SWITCH, &is_deep, "read all data, and compare checksums"},
        {"allow-oversubscribe", FLAG_SWITCH, &oversubscribe,
         "accept a run that needs more memory or disk space than it has"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    struct config c;
    struct preflight p = {.resume_step = -1};
    struct deep_check deep = {0};
    struct data_plan plan = {0};
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) no_effect_log(&c);
    if (!st) st = preflight_ranks(&c, requested, &ranks);
    const struct preflight_options o = {
        .num_ranks = ranks, .place = place_of(&c, requested), .oversubscribe = oversubscribe};
    if (!st) st = preflight(&p, &c, &o);
    if (!st) st = data_plan_make(&plan, &c, &p);
    if (!st) data_plan_warn(&plan);
    if (is_deep) st = add_deep_check(&deep, &c, &p, st);
    if (json) {
        print_json(st, ranks, &p, &deep, &plan);
    } else if (!st) {
        printf("%s is valid for %s: %s of width %d, %s of %lld tokens\n", a.words[0],
               counted_format(ranks, "rank").text, counted_format(p.shape.L, "block").text,
               p.shape.D, counted_format(c.training.steps, "step").text,
               (long long)(c.training.seq_len * config_step_rows(&c, &p.mesh)));
        print_start(&c, &p);
        print_ramp(&c, &p.mesh);
        print_padding(&c, &p.mesh);
        print_plan(&plan);
        if (is_deep)
            printf("data: %s in %s, %llu bad; %llu with checksums\n",
                   counted_format((int64_t)deep.num_read, "record").text,
                   counted_format((int64_t)deep.num_sources, "source").text,
                   (unsigned long long)deep.num_bad, (unsigned long long)deep.num_sums);
    }
    data_plan_release(&plan);
    preflight_release(&p);
    config_release(&c);
    return st;
}
