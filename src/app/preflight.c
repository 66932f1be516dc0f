// SPDX-License-Identifier: Apache-2.0
#include "app/preflight.h"

#include "app/dump_folder.h"
#include "app/run_memory.h"
#include "base/byte_size.h"
#include "base/log.h"
#include "checkpoint/copier.h"
#include "config/data_stages.h"
#include "data/bad_records.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "hub/hub.h"
#include "machine/launch.h"
#include "machine/machine.h"
#include "train/inputs.h"
#include "train/start.h"
#include "train/validation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status preflight_ranks(const struct config *c, int64_t requested, int *num_ranks)
{
    bool given = requested != PREFLIGHT_FEWEST_RANKS;
    int64_t ranks = given ? requested : mesh_min_ranks(&c->parallelism);
    if (ranks < 1 || ranks > PREFLIGHT_MAX_RANKS)
        FAIL(USAGE,
             "--ranks: must be between 1 and %d, is %lld, the product of the parallel degrees",
             PREFLIGHT_MAX_RANKS, (long long)ranks);
    *num_ranks = (int)ranks;
    return STATUS_OK;
}

/* One pass over the checks: which of those that others depend on have succeeded. */
struct flight {
    struct preflight *p;
    const struct config *c;
    const struct preflight_options *o;
    bool is_valid, has_tokenizer, has_shape, fits; /* is_valid: the configuration, and the mesh */
    bool has_data;                                 /* no source has a problem */
    bool awaits_tokenizer;                         /* that of initial weights that are not here */
    size_t num_opened;                             /* sources, that for validation included */
};

/* True: it succeeded. */
static bool passes(struct flight *f, enum status s) { return !problems_add(&f->p->problems, s); }

/* --- data --- */

/* Finds the sources that can be opened now. */
static enum status find_data(struct flight *f, const struct data_config *d)
{
    struct preflight *p = f->p;
    const struct config *c = f->c;
    size_t count = d->num_sources;
    const char **paths = heap((count + 1) * sizeof *paths);
    struct text report = {0};
    enum status st = STATUS_OK;
    p->has_source = heap((count + 1) * sizeof *p->has_source);
    for (size_t i = 0; i < count; i++) paths[i] = d->sources[i].path;
    paths[count] = c->validation.enable ? c->validation.dataset_path : "";
    TRY_OUT(hub_look(paths, count + 1, p->has_source, &report));
    p->data_checked = true;
    for (size_t i = 0; i <= count; i++) p->data_checked &= p->has_source[i];
    if (!p->data_checked)
        log_line(LOG_WARN, "data not checked: %s; `llamero fetch PATH` downloads it", report.data);
out:
    text_release(&report);
    free(paths);
    return st;
}

static enum status ignore_document(void *context, const struct document *d)
{
    (void)context, (void)d;
    return STATUS_OK;
}

/* Warns about settings of a source that its files ignore. */
static void warn_about_source(const struct source *s)
{
    const struct source_config *c = s->config;
    if (strcmp(c->column, "text") != 0 && !source_has_columns(s))
        log_line(LOG_WARN,
                 "column = \"%s\" has no effect: %s has no columns; .jsonl, .parquet and .arrow "
                 "files do",
                 c->column, c->path);
    if (c->neurons > 0 && !source_holds_counts(s))
        log_line(LOG_WARN, "neurons = %lld has no effect: %s has no spike counts",
                 (long long)c->neurons, c->path);
}

/* Opens a source and reads its first records as training will. */
static enum status read_source(struct flight *f, const struct data_config *d,
                               const struct source_config *source)
{
    enum { TOKENS = 2048 };
    const struct corpus first = {.sources = source,
                                 .num_sources = 1,
                                 .tokenizer = f->p->tokenizer,
                                 .vocab_size = f->p->shape.V,
                                 .bos = d->bos,
                                 .eos = d->eos,
                                 .skips_bad = d->on_bad_record == ON_BAD_RECORD_skip,
                                 .is_quiet = true,
                                 .max_ids = TOKENS};
    struct source s;
    TRY(source_open(&s, source));
    warn_about_source(&s);
    source_close(&s);
    f->num_opened++;
    if (!f->has_shape || f->awaits_tokenizer) return STATUS_OK;
    TRY(bad_records_stop(corpus_each(&first, ignore_document, NULL),
                         "data.on_bad_record = \"skip\""));
    return STATUS_OK;
}

/* Without a tokenizer or a model, still opens the files. */
static void check_sources(struct flight *f)
{
    struct source_config one;
    const struct data_config d = inputs_data_config(f->c, &one);
    const char *validation = f->c->validation.dataset_path;
    bool validates = f->c->validation.enable && validation[0];
    f->has_data = passes(f, find_data(f, &d));
    for (size_t i = 0; i < d.num_sources; i++)
        if (f->p->has_source[i] && d.sources[i].path[0])
            f->has_data &= passes(f, read_source(f, &d, &d.sources[i]));
    if (validates && f->p->has_source[d.num_sources]) {
        struct source_config other;
        const struct data_config v =
            inputs_data_of_path(f->c, validation, f->c->validation.column, &other);
        f->has_data &= passes(f, read_source(f, &v, v.sources));
    }
    f->p->can_scan = f->has_shape && f->num_opened == d.num_sources + validates;
}

/* The sources of a stage that are on this machine. */
static struct source_config *list_found(const struct preflight *p, struct data_config *d)
{
    struct source_config *found = heap((d->num_sources + 1) * sizeof *found);
    size_t count = 0;
    for (size_t i = 0; i < d->num_sources; i++)
        if (p->has_source[i]) found[count++] = d->sources[i];
    d->sources = found, d->num_sources = count;
    return found;
}

/* Opens the data of a stage as the run will; `cursor`: and resumes, unless it is NULL. */
static enum status check_loader(const struct flight *f, const struct config *stage, bool is_quiet,
                                const struct json *cursor)
{
    struct source_config one;
    struct loader *loader = NULL;
    struct data_config d = inputs_data_config(stage, &one);
    struct source_config *found = list_found(f->p, &d);
    struct loader_options o =
        inputs_loader_options(stage, &f->p->mesh, &d, f->p->tokenizer, f->p->shape.V);
    enum status st = STATUS_OK;
    o.prefetch_rows = 0;
    o.is_quiet = is_quiet;
    if (d.num_sources || f->p->data_checked) TRY_OUT(loader_open(&loader, &o));
    if (loader && cursor && f->p->data_checked) TRY_OUT(loader_load(loader, cursor));
out:
    loader_close(loader);
    free(found);
    return st;
}

/* Where the run resumes in its data; NULL: from the first row. */
static const struct json *find_cursor(const struct start_state *s)
{
    const struct json *cursor = json_get(s->found.train, "data");
    bool is_excluded = option_list_contains(&s->start.excluded, "dataloader");
    return s->found.train && !is_excluded && !json_is_null(cursor) ? cursor : NULL;
}

static void check_stages(struct flight *f, const struct start_state *s)
{
    const struct preflight *p = f->p;
    size_t count = data_stages_count(f->c);
    int64_t done = start_steps_done(&s->start, &s->found);
    size_t at = data_stages_find(f->c, &p->mesh, done);
    for (size_t i = at; i < count; i++) {
        struct data_stage stage;
        data_stages_open(&stage, f->c, &p->mesh, i);
        bool is_quiet = f->o->place == PREFLIGHT_RUN || i > at;
        const struct json *cursor = i == at ? find_cursor(s) : NULL;
        enum status st = config_fit(&stage.config, &p->shape, &p->mesh);
        if (!st) st = check_loader(f, &stage.config, is_quiet, cursor);
        if (!st && p->data_checked && !f->awaits_tokenizer)
            st = validation_check(&stage.config, &p->mesh, p->tokenizer, p->shape.V);
        data_stages_close(&stage);
        if (st && i) status_prefix(st, "data.stage.%zu", i - 1);
        f->has_data &= passes(f, st);
    }
}

static enum status check_tasks(const struct flight *f)
{
    struct task_validation v = {0};
    enum status st = task_validation_open(&v, f->c, f->p->tokenizer, f->o->place != PREFLIGHT_RUN);
    task_validation_close(&v);
    return st;
}

/* --- device and memory --- */

/* Whether a device, memory or space that this machine lacks is a problem, not a warning. */
static bool is_here(const struct flight *f)
{
    return f->o->place == PREFLIGHT_HERE || f->o->place == PREFLIGHT_RUN;
}

static enum status compare_memory(const struct flight *f, const struct run_memory *m)
{
    const struct config *c = f->c;
    const struct hardware h = device_config_hardware(&c->device);
    char stage[40] = "";
    double has = 0, needed = (double)run_memory_needed(m);
    if (data_stages_count(c) > 1)
        snprintf(stage, sizeof stage, " in data stage %zu", m->data_stage);
    TRY(run_memory_available(m, c, f->o->host_ranks, &has));
    if (needed <= has) return STATUS_OK;
    if (is_here(f) || h.memory_bytes > 0)
        FAIL(
            CONFIG,
            "not enough memory: a rank requires %s%s, %s has %s per rank; "
            "`llamero plan` shows memory by category, `llamero plan --fit` options that need less; "
            "--allow-oversubscribe skips this check",
            byte_size_format(needed).text, stage,
            c->device.hardware == HARDWARE_cpu ? "this machine" : h.name,
            byte_size_format(has).text);
    log_line(LOG_WARN,
             "a rank requires %s%s, and this machine has %s per rank; set "
             "device.hardware to check against another machine",
             byte_size_format(needed).text, stage, byte_size_format(has).text);
    return STATUS_OK;
}

/* Memory of the GPUs' hosts.  Only a warning: what other programs use is not known. */
static void warn_about_host_memory(const struct flight *f, const struct run_memory *m)
{
    double needed = (double)run_memory_host_needed(m);
    double has = run_memory_host_available(m, f->c, f->o->host_ranks);
    if (has > 0 && needed > has)
        log_line(LOG_WARN,
                 "a rank requires %s of host memory, and its host has %s per rank; "
                 "`llamero plan` shows host memory by category",
                 byte_size_format(needed).text, byte_size_format(has).text);
}

static enum status check_memory(const struct flight *f)
{
    struct run_memory m = {0};
    enum status st = STATUS_OK;
    TRY_OUT(run_memory_plan_run(&m, f->c, f->p->tokenizer, f->o->num_ranks));
    if (!f->o->oversubscribe) TRY_OUT(compare_memory(f, &m));
    warn_about_host_memory(f, &m);
out:
    run_memory_release(&m);
    return st;
}

static void warn_about_cores(const struct flight *f)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int ranks = f->o->host_ranks;
    if (f->o->place == PREFLIGHT_RUN && cores > 0 && ranks > cores)
        log_line(
            LOG_WARN,
            "%d ranks on this host share its %ld core%s, which is slow: start at most one rank "
            "per core",
            ranks, cores, cores == 1 ? "" : "s");
}

/* With `plans` also opens the device, and compares memory. */
static void check_device(struct flight *f, bool plans)
{
    bool gpu;
    enum status st = machine_uses_gpu(&f->c->device, &gpu);
    if (!st && !gpu && is_here(f) && f->c->device.comm != DEVICE_COMM_auto)
        log_line(LOG_WARN,
                 "device.comm = \"%s\" has no effect: it connects GPUs, and this run uses "
                 "the CPU",
                 device_comm_word(f->c->device.comm));
    if (!st && !gpu) warn_about_cores(f);
    if (!st && plans) st = check_memory(f);
    if (st == STATUS_UNSUPPORTED && !is_here(f))
        log_line(LOG_WARN, "device and memory not checked: %s", status_message());
    else
        passes(f, st);
}

static enum status check_launch(const struct flight *f)
{
    int ranks = f->o->num_ranks;
    bool is_here = f->o->place == PREFLIGHT_HERE;
    if (ranks == 1 || launch_library() || (is_here && ranks <= LAUNCHER_MAX_RANKS))
        return STATUS_OK;
    if (is_here || f->o->place == PREFLIGHT_JOB)
        FAIL(UNSUPPORTED,
             "%d ranks, but this program was built without MPI and starts at most %d, on one host: "
             "install Open MPI or MPICH with its headers, and rebuild",
             ranks, LAUNCHER_MAX_RANKS);
    if (f->o->place == PREFLIGHT_ELSEWHERE)
        log_line(LOG_WARN,
                 "%d ranks on several hosts require a program with MPI, and this one was built "
                 "without: install Open MPI or MPICH with its headers, and rebuild",
                 ranks);
    return STATUS_OK;
}

static void check_model(struct flight *f)
{
    const struct config *c = f->c;
    struct preflight *p = f->p;
    f->is_valid = passes(f, config_check(c, f->o->num_ranks)) &&
                  passes(f, mesh_resolve(&p->mesh, &c->parallelism, 0, f->o->num_ranks));
    f->has_tokenizer = passes(f, inputs_fetch_tokenizer(c, comm_self())) &&
                       passes(f, inputs_open_tokenizer(c, false, &p->tokenizer));
    f->has_shape =
        f->has_tokenizer &&
        passes(f, model_shape_resolve(&p->shape, &c->model, tokenizer_vocab_size(p->tokenizer)));
    f->fits = f->is_valid && f->has_shape && passes(f, config_fit(c, &p->shape, &p->mesh));
}

/* Warns about settings that only the tokenizer, or the number of ranks, makes useless. */
static void warn_about_settings(const struct flight *f)
{
    const struct option_ranges *skipped = &f->c->guard.skip_rows;
    int64_t rows = f->is_valid && f->c->training.steps < 1LL << 31
                       ? config_step_rows(f->c, &f->p->mesh) * f->c->training.steps
                       : INT64_MAX / 2;
    if (f->p->tokenizer && f->c->tokenizer.meta_cuts && !encoder_uses_cuts(f->p->tokenizer))
        log_line(LOG_WARN,
                 "tokenizer.meta_cuts = true has no effect: a %s tokenizer does not split text",
                 tokenizer_kind(f->p->tokenizer));
    for (size_t i = 0; i < skipped->count; i++) {
        const struct option_range *r = &skipped->items[i];
        int64_t end = rows; /* skipped rows come in addition */
        for (size_t k = 0; k < skipped->count; k++)
            if (skipped->items[k].first < r->first)
                end += skipped->items[k].last - skipped->items[k].first + 1;
        if (r->first >= end)
            log_line(LOG_WARN,
                     "guard.skip_rows: [%lld, %lld] has no effect: the run ends before row %lld",
                     (long long)r->first, (long long)r->last, (long long)end);
    }
}

/* Initial weights, or the checkpoint to resume from. */
static void check_start(struct flight *f, struct start_state *s)
{
    struct model_shape shape = f->p->shape;
    if (shape.max_context < f->c->training.seq_len) shape.max_context = (int)f->c->training.seq_len;
    bool log = f->o->place != PREFLIGHT_RUN; /* the run does */
    if (!passes(f, start_check(f->c, &shape, log))) return;
    if (passes(f, start_read_state(s, f->c, &shape, log)) && s->start.own)
        f->p->resume_step = s->start.step;
    f->p->has_only_model = s->found.train && !s->found.has_moments;
    f->p->steps_done = start_steps_done(&s->start, &s->found);
}

static void check_space(struct flight *f)
{
    int64_t step = f->o->place == PREFLIGHT_JOB ? -1 : f->p->steps_done;
    enum status st = dump_folder_check_space(f->c, &f->p->shape, step);
    if (st && (!is_here(f) || f->o->oversubscribe))
        log_line(LOG_WARN, "%s", status_message());
    else
        passes(f, st);
}

static void run_checks(struct flight *f)
{
    struct start_state start = {0};
    enum preflight_place place = f->o->place;
    const char *copies = f->c->checkpoint.copy_to;
    check_model(f);
    if (passes(f, dump_folder_check(f->c)) && f->fits && place != PREFLIGHT_JOB)
        check_start(f, &start);
    f->awaits_tokenizer =
        !f->p->tokenizer && f->c->checkpoint.initial_load_path[0] && !start.start.folder;
    warn_about_settings(f);
    check_sources(f);
    passes(f, check_launch(f));
    if (f->is_valid && copies[0]) passes(f, copier_check_destination(copies));
    if (f->fits) check_space(f);
    if (f->fits && f->has_data) check_stages(f, &start);
    if (f->has_tokenizer && f->is_valid && !f->awaits_tokenizer) passes(f, check_tasks(f));
    if (place != PREFLIGHT_JOB) check_device(f, f->fits && f->has_data);
    start_release_state(&start);
}

enum status preflight(struct preflight *p, const struct config *c,
                      const struct preflight_options *o)
{
    struct flight f = {.p = p, .c = c, .o = o};
    *p = (struct preflight){.resume_step = -1};
    run_checks(&f);
    return problems_report(&p->problems);
}

void preflight_release(struct preflight *p)
{
    tokenizer_close(p->tokenizer);
    free(p->has_source);
    problems_release(&p->problems);
    p->tokenizer = NULL, p->has_source = NULL;
}
