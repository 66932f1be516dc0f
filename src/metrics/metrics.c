// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics.h"

#include "base/append_file.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/event_file.h"
#include "metrics/console.h"
#include "metrics/console_megatron.h"
#include "metrics/console_nxdt.h"
#include "metrics/derived_metrics.h"
#include "metrics/eta.h"
#include "metrics/history.h"
#include "metrics/mlflow_run.h"
#include "metrics/wandb_run.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

struct metrics {
    struct metrics_options options; /* config and dump_folder are not used after metrics_open */
    bool color;
    struct append_file lines, events;
    struct wandb_run *wandb;   /* NULL: not enabled */
    struct mlflow_run *mlflow; /* NULL: not enabled */
    int64_t lost_step;         /* of the last line of metrics.jsonl that was lost */
    struct text text;          /* the record being formatted; reserved in advance */
    struct text brief;         /* its short form for a terminal */
    struct eta eta;
    const struct dialect *dialect;
    struct megatron_means means;
    double begin_s, best_throughput;
    bool nxdt_tags;
};

/* The format of console lines.  Functions append to m->text, and a short form to m->brief. */
struct dialect {
    void (*step)(struct metrics *m, const struct step_metrics *s, const struct derived_metrics *d);
    void (*validation)(struct metrics *m, int64_t step, double loss,
                       const struct derived_metrics *d);
    bool parameter_norm;
};

static struct run_progress progress_at(const struct metrics *m, int64_t rows_done)
{
    return (struct run_progress){
        .elapsed_s = clock_monotonic_s() - m->begin_s,
        .remaining_s = eta_remaining_s(&m->eta, rows_done, m->options.last_rows),
        .wall_s = clock_wall_s(),
        .best_throughput = m->best_throughput,
    };
}

static void append_torchtitan_step(struct metrics *m, const struct step_metrics *s,
                                   const struct derived_metrics *d)
{
    struct run_progress p = progress_at(m, s->rows_done);
    console_step(&m->text, s, d, &p, m->color);
    console_step_brief(&m->brief, s, d, &p, m->color);
}

static void append_torchtitan_validation(struct metrics *m, int64_t step, double loss,
                                         const struct derived_metrics *d)
{
    console_validation(&m->text, step, loss, d, m->color);
}

static void append_megatron_step(struct metrics *m, const struct step_metrics *s,
                                 const struct derived_metrics *d)
{
    struct run_progress p = progress_at(m, s->rows_done);
    console_megatron_step(&m->text, &m->options, s, d, &p);
    console_megatron_add(&m->means, &m->options, s, d);
}

static void append_megatron_validation(struct metrics *m, int64_t step, double loss,
                                       const struct derived_metrics *d)
{
    (void)d;
    console_megatron_validation(&m->text, step, loss);
}

static void append_nxdt_step(struct metrics *m, const struct step_metrics *s,
                             const struct derived_metrics *d)
{
    struct run_progress p = progress_at(m, s->rows_done);
    console_nxdt_step(&m->text, &m->options, s, d, &p);
}

static const struct dialect dialects[] = {
    [CONSOLE_torchtitan] = {append_torchtitan_step, append_torchtitan_validation, false},
    [CONSOLE_megatron] = {append_megatron_step, append_megatron_validation, false},
    /* NxD Training has no validation line */
    [CONSOLE_nxdt] = {append_nxdt_step, append_torchtitan_validation, true},
};

bool metrics_needs_parameter_norm(const struct metrics_config *c)
{
    return c->log_parameter_norm || dialects[c->console].parameter_norm;
}

void metrics_summarize(struct metrics *m)
{
    text_clear(&m->text);
    console_megatron_summary(&m->text, &m->means, &m->options);
    if (m->text.len) log_line(LOG_INFO, "%s", m->text.data);
}

/* A line that says that lines up to a step are missing before it. */
static void write_gap(struct metrics *m, size_t num_lost)
{
    struct text line = {0};
    struct json_writer w = {.text = &line};
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_int(&w, "step", m->lost_step);
    json_write_int(&w, "gap", (int64_t)num_lost);
    json_end_object(&w);
    json_finish(&w);
    text_adds(&line, "\n");
    append_file_write(&m->lines, line.data, line.len);
    text_release(&line);
}

static void catch_up(struct metrics *m, struct append_file *f)
{
    size_t lost = log_catch_up(f);
    if (lost && f == &m->lines) write_gap(m, lost);
}

/* Appends the record in m->text. */
static void append_record(struct metrics *m, struct append_file *f, int64_t step)
{
    catch_up(m, f);
    size_t lost = f->num_lost;
    log_append(f, m->text.data, m->text.len);
    if (f == &m->lines && f->num_lost > lost) m->lost_step = step;
}

/* Without checkpoints nothing repeats the steps of an earlier start: moves its lines to the first
 * unused of metrics.1.jsonl, metrics.2.jsonl, ... */
static enum status keep_lines(const struct metrics *m, const char *path)
{
    struct text to = {0};
    uint64_t bytes = 0;
    enum status st = STATUS_OK;
    if (m->options.first_step || !m->options.is_unsaved || !file_exists(path)) return STATUS_OK;
    TRY(file_size(path, &bytes));
    if (!bytes) return STATUS_OK;
    for (int i = 1; !to.len || file_exists(to.data); i++) {
        text_clear(&to);
        text_addf(&to, "%s/metrics.%d.jsonl", m->options.dump_folder, i);
    }
    st = file_rename(path, to.data);
    if (!st)
        log_line(LOG_WARN,
                 "checkpoint.enable = false: this start begins at step 0 again; the metrics of "
                 "the one before it are now in %s",
                 to.data);
    text_release(&to);
    return st;
}

static enum status open_lines(struct metrics *m)
{
    size_t num_removed;
    const char *name = m->options.is_load_only ? "metrics.load_only.jsonl" : "metrics.jsonl";
    char *path = file_join(m->options.dump_folder, name);
    const struct history_end end = {m->options.first_step, m->options.validation_due};
    enum status st = STATUS_OK;
    TRY_OUT(keep_lines(m, path));
    TRY_OUT(history_truncate(path, &end, &num_removed));
    if (num_removed)
        log_line(LOG_INFO, "%s: removed %zu line%s after step %lld, from which the run continues",
                 path, num_removed, num_removed == 1 ? "" : "s", (long long)end.last_step);
    TRY_OUT(append_file_open(&m->lines, path, 0));
out:
    free(path);
    return st;
}

/* The step of TensorBoard, W&B and MLflow: NxD Training counts from 0. */
static int64_t event_step(const struct metrics *m, int64_t step)
{
    return step - (m->nxdt_tags ? 1 : 0);
}

static enum status open_events(struct metrics *m)
{
    enum { TRIES = 1000 };
    struct text name = {0};
    double now = clock_wall_s();
    char *folder = file_join(m->options.dump_folder, m->options.config->save_tb_folder);
    char *path = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(file_make_dirs(folder));
    /* The number distinguishes starts in the same second, in containers with equal process IDs. */
    for (int i = 0; i < TRIES && !path; i++) {
        text_clear(&name);
        event_file_name(&name, now, i);
        path = file_join(folder, name.data);
        if (!file_exists(path)) continue;
        free(path);
        path = NULL;
    }
    if (!path) FAIL_OUT(IO, "%s: no unused name for an event file", folder);
    TRY_OUT(append_file_open(&m->events, path, O_EXCL));
    text_clear(&m->text);
    event_file_add_version(&m->text, now);
    event_file_add_session_start(&m->text, event_step(m, m->options.first_step) + 1, now);
    append_record(m, &m->events, m->options.first_step);
out:
    free(path);
    free(folder);
    text_release(&name);
    return st;
}

/* What is not of the run's lineage stays out of W&B and MLflow. */
static enum status open_trackers(struct metrics *m)
{
    const struct metrics_options *o = &m->options;
    const int64_t last_step = event_step(m, o->first_step);
    bool is_enabled = o->config->enable_wandb || o->config->enable_mlflow;
    if (is_enabled && o->is_load_only) {
        log_line(LOG_INFO, "with checkpoint.load_only and load_step, W&B and MLflow get no steps");
        return STATUS_OK;
    }
    if (o->config->enable_wandb) TRY(wandb_run_open(&m->wandb, o, last_step));
    if (o->config->enable_mlflow) TRY(mlflow_run_open(&m->mlflow, o, last_step));
    return STATUS_OK;
}

enum status metrics_open(struct metrics **out, const struct metrics_options *o)
{
    enum { RECORD_BYTES = 1 << 14 }; /* many times the longest record */
    struct metrics *m = heap(sizeof *m);
    m->options = *o;
    m->dialect = &dialects[o->config->console];
    m->begin_s = clock_monotonic_s();
    m->nxdt_tags = o->config->tensorboard_tags == TAGS_nxdt;
    m->color = log_color() && !o->config->disable_color_printing;
    m->lines.fd = m->events.fd = -1;
    text_reserve(&m->text, RECORD_BYTES);
    text_reserve(&m->brief, RECORD_BYTES);
    tzset(); /* reads the time zone now instead of in a step */
    *out = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(file_make_dirs(o->dump_folder));
    TRY_OUT(open_lines(m));
    if (o->config->enable_tensorboard) TRY_OUT(open_events(m));
    TRY_OUT(open_trackers(m));
    *out = m;
    return STATUS_OK;
out:
    metrics_close(m);
    return st;
}

void metrics_close(struct metrics *m)
{
    if (!m) return;
    catch_up(m, &m->lines);
    wandb_run_close(m->wandb);
    mlflow_run_close(m->mlflow);
    log_close_file(&m->events);
    log_close_file(&m->lines);
    text_release(&m->text), text_release(&m->brief);
    free(m);
}

void metrics_end(struct metrics *m, enum status how)
{
    struct failure why = {0};
    status_save(&why, how);
    if (m->wandb) wandb_run_end(m->wandb, status_exit_code(how));
    if (m->mlflow)
        mlflow_run_end(m->mlflow, how == STATUS_OK        ? MLFLOW_FINISHED
                                  : how == STATUS_REQUEUE ? MLFLOW_KILLED
                                                          : MLFLOW_FAILED);
    if (how) (void)status_restore(&why);
}

/* Nine digits round-trip a float. */
static void write_number(struct json_writer *w, const char *key, double value)
{
    json_write_format(w, key, "%.9g", value);
}

/* Begin and end a line of metrics.jsonl in m->text; end_line also writes it. */
static struct json_writer begin_line(struct metrics *m, int64_t step)
{
    struct json_writer w = {.text = &m->text};
    text_clear(&m->text);
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_int(&w, "step", step);
    return w;
}

static void end_line(struct metrics *m, struct json_writer *w, int64_t step)
{
    json_end_object(w);
    json_finish(w);
    text_adds(&m->text, "\n");
    append_record(m, &m->lines, step);
}

static void write_step_line(struct metrics *m, const struct step_metrics *s,
                            const struct derived_metrics *d)
{
    struct json_writer w = begin_line(m, s->step);
    write_number(&w, "loss", s->loss);
    write_number(&w, "max_loss", s->max_loss);
    write_number(&w, "grad_norm", s->grad_norm);
    write_number(&w, "lr", s->lr);
    if (s->parameter_norm > 0) write_number(&w, "parameter_norm", s->parameter_norm);
    json_write_int(&w, "tokens_seen", s->tokens_seen);
    write_number(&w, "tokens_per_second", d->tokens_per_second);
    write_number(&w, "tokens_per_second_per_rank", d->tokens_per_second_per_rank);
    write_number(&w, "tflops_per_rank", d->tflops_per_rank);
    write_number(&w, "mfu", d->mfu);
    write_number(&w, "step_seconds", d->step_seconds);
    write_number(&w, "data_seconds", d->data_seconds);
    json_write_int(&w, "memory_bytes", s->memory_bytes);
    if (s->padding > 0) write_number(&w, "padding", d->padding_share);
    end_line(m, &w, s->step);
}

static void write_validation_line(struct metrics *m, int64_t step, double loss)
{
    struct json_writer w = begin_line(m, step);
    write_number(&w, "validation_loss", loss);
    end_line(m, &w, step);
}

static void write_events(struct metrics *m, int64_t run_step, const struct event_scalar *s,
                         int count)
{
    int64_t step = event_step(m, run_step);
    if (m->wandb) wandb_run_log(m->wandb, step, s, count);
    if (m->mlflow) mlflow_run_log(m->mlflow, step, s, count);
    if (m->events.fd < 0) return;
    text_clear(&m->text);
    event_file_add_scalars(&m->text, step, clock_wall_s(), s, count);
    append_record(m, &m->events, step);
}

/* NxD Training's tags. */
static void write_nxdt_events(struct metrics *m, const struct step_metrics *s,
                              const struct derived_metrics *d)
{
    double rate = console_nxdt_throughput(d);
    const struct event_scalar scalars[] = {
        {"reduced_train_loss", s->loss},
        {"lr", s->lr},
        {"gradient_norm", s->grad_norm},
        {"global_step", (double)event_step(m, s->step)},
        {"consumed_samples", (double)s->rows_done},
        {"throughput", rate},
        {"throughput_peak", fmax(m->best_throughput, rate)},
        {"epoch", 0},
        {"parameter_norm", s->parameter_norm}, /* last, so that it can be dropped */
    };
    int count = (int)(sizeof scalars / sizeof *scalars) - (s->parameter_norm > 0 ? 0 : 1);
    write_events(m, s->step, scalars, count);
}

/* torchtitan's tags.  Active and reserved memory are the same here, and failed allocations are not
 * retried. */
static void write_torchtitan_events(struct metrics *m, const struct step_metrics *s,
                                    const struct derived_metrics *pd)
{
    const struct derived_metrics d = *pd;
    struct event_scalar scalars[] = {
        {"loss_metrics/global_avg_loss", s->loss},
        {"loss_metrics/global_max_loss", s->max_loss},
        {"grad_norm", s->grad_norm},
        {"throughput(tps)", d.tokens_per_second_per_rank},
        {"tflops", d.tflops_per_rank},
        {"time_metrics/end_to_end(s)", d.step_seconds},
        {"time_metrics/data_loading(s)", d.data_seconds},
        {"time_metrics/data_loading(%)", 100 * d.data_share},
        {"memory/max_active(GiB)", d.memory_gib},
        {"memory/max_active(%)", 100 * d.memory_share},
        {"memory/max_reserved(GiB)", d.memory_gib},
        {"memory/max_reserved(%)", 100 * d.memory_share},
        {"memory/num_alloc_retries", 0},
        {"memory/num_ooms", 0},
        {"n_tokens_seen", (double)s->tokens_seen},
        {"lr", s->lr},
        {NULL, 0}, /* room for two values that may be unknown */
        {NULL, 0},
    };
    int count = (int)(sizeof scalars / sizeof *scalars) - 2;
    if (!isnan(d.mfu)) scalars[count++] = (struct event_scalar){"mfu(%)", 100 * d.mfu};
    if (s->parameter_norm > 0)
        scalars[count++] = (struct event_scalar){"parameter_norm", s->parameter_norm};
    write_events(m, s->step, scalars, count);
}

void metrics_step(struct metrics *m, const struct step_metrics *s)
{
    struct derived_metrics d = derived_metrics_compute(&m->options, s);
    eta_add(&m->eta, s->seconds, d.step_rows * (double)s->steps);
    text_clear(&m->text);
    text_clear(&m->brief);
    m->dialect->step(m, s, &d);
    log_line_fitting(m->text.data, m->brief.len ? m->brief.data : m->text.data);
    write_step_line(m, s, &d);
    (m->nxdt_tags ? write_nxdt_events : write_torchtitan_events)(m, s, &d);
    m->best_throughput = fmax(m->best_throughput, console_nxdt_throughput(&d));
}

void metrics_validation(struct metrics *m, int64_t step, double loss, double seconds,
                        int64_t tokens, int64_t memory_bytes)
{
    struct step_metrics s = {.step = step,
                             .tokens = tokens,
                             .steps = 1,
                             .seconds = seconds,
                             .memory_bytes = memory_bytes};
    struct derived_metrics d = derived_metrics_compute(&m->options, &s);
    const struct event_scalar scalars[] = {
        {"validation_metrics/loss", loss},
        {"validation_metrics/throughput(tps)", d.tokens_per_second_per_rank},
        {"validation_metrics/memory/max_active(GiB)", d.memory_gib},
        {"validation_metrics/memory/max_active(%)", 100 * d.memory_share},
        {"validation_metrics/memory/max_reserved(GiB)", d.memory_gib},
        {"validation_metrics/memory/max_reserved(%)", 100 * d.memory_share},
    };
    eta_add_pause(&m->eta, seconds);
    text_clear(&m->text);
    m->dialect->validation(m, step, loss, &d);
    log_line(LOG_INFO, "%s", m->text.data);
    write_validation_line(m, step, loss);
    if (m->nxdt_tags)
        write_events(m, step, &(struct event_scalar){"val_loss", loss}, 1);
    else
        write_events(m, step, scalars, sizeof scalars / sizeof *scalars);
}

static void write_rows(struct json_writer *w, int64_t first_row, int64_t last_row)
{
    json_begin_array(w, "rows_skipped", JSON_COMPACT);
    json_write_int(w, NULL, first_row);
    json_write_int(w, NULL, last_row);
    json_end_array(w);
}

void metrics_rollback(struct metrics *m, const struct rollback_metrics *r)
{
    struct json_writer w = begin_line(m, r->step);
    json_write_int(&w, "rollback_from", r->from);
    write_rows(&w, r->first_row, r->last_row);
    write_number(&w, "spike_loss", r->loss);
    end_line(m, &w, r->step);
}

void metrics_skipped_rows(struct metrics *m, int64_t step, int64_t first_row, int64_t last_row)
{
    struct json_writer w = begin_line(m, step);
    write_rows(&w, first_row, last_row);
    end_line(m, &w, step);
}

void metrics_task(struct metrics *m, int64_t step, const struct task *t,
                  const struct task_result *r)
{
    struct task_value values[TASK_MAX_VALUES];
    struct event_scalar scalars[TASK_MAX_VALUES];
    struct text tags[TASK_MAX_VALUES] = {0};
    int count = task_result_values(t, r, values);
    text_clear(&m->text);
    text_addf(&m->text, "step: %lld  %s:", (long long)step, t->name);
    for (int i = 0; i < count; i++) {
        text_addf(&m->text, "  %s: %.4f", values[i].name, values[i].value);
        text_addf(&tags[i], "tasks/%s/%s", t->name, values[i].name);
        scalars[i] = (struct event_scalar){tags[i].data, values[i].value};
    }
    log_line(LOG_INFO, "%s", m->text.data);
    struct json_writer w = begin_line(m, step);
    task_result_write_json(t, r, &w);
    end_line(m, &w, step);
    write_events(m, step, scalars, count);
    for (int i = 0; i < count; i++) text_release(&tags[i]);
}
