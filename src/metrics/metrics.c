// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/event_file.h"
#include "metrics/console.h"
#include "metrics/console_megatron.h"
#include "metrics/console_nxdt.h"
#include "metrics/figures.h"
#include "metrics/history.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A file that only grows.  `end` is where the next piece goes, so that a piece that was written in
 * part is written over. */
struct tail {
    int fd; /* -1: none */
    char *path;
    uint64_t end;
};

struct metrics {
    struct metrics_options options; /* config and dump_folder are not read after metrics_open */
    bool colour;
    struct tail lines, events;
    struct text text; /* what is being put together; large enough from the start */
    struct pace pace;
    const struct dialect *dialect;
    struct megatron_means means;
    double begin_s, best_throughput;
};

/* Whose lines a run prints, put together in m->text. */
struct dialect {
    const char *name;
    void (*step)(struct metrics *m, const struct step_metrics *s, const struct figures *f);
    void (*validation)(struct metrics *m, int64_t step, double loss, const struct figures *f);
    bool parameter_norm;
};

static double left_s(const struct metrics *m, int64_t step)
{
    return pace_left_s(&m->pace, step, m->options.last_step);
}

static void say_torchtitans(struct metrics *m, const struct step_metrics *s,
                            const struct figures *f)
{
    console_step(&m->text, s, f, left_s(m, s->step), clock_wall_s(), m->colour);
}

static void say_torchtitans_validation(struct metrics *m, int64_t step, double loss,
                                       const struct figures *f)
{
    console_validation(&m->text, step, loss, f, m->colour);
}

static void say_megatrons(struct metrics *m, const struct step_metrics *s, const struct figures *f)
{
    megatron_step(&m->text, &m->options, s, f, clock_wall_s());
    megatron_add(&m->means, &m->options, s, f);
}

static void say_megatrons_validation(struct metrics *m, int64_t step, double loss,
                                     const struct figures *f)
{
    (void)f;
    megatron_validation(&m->text, step, loss);
}

static void say_nxdts(struct metrics *m, const struct step_metrics *s, const struct figures *f)
{
    nxdt_step(&m->text, &m->options, s, f, clock_monotonic_s() - m->begin_s, left_s(m, s->step),
              m->best_throughput);
    m->best_throughput = fmax(m->best_throughput, nxdt_throughput(&m->options, f));
}

static const struct dialect dialects[] = {
    {"torchtitan", say_torchtitans, say_torchtitans_validation, false},
    {"megatron", say_megatrons, say_megatrons_validation, false},
    {"nxdt", say_nxdts, say_torchtitans_validation, true}, /* NxD Training has no line of its own */
};

static const struct dialect *dialect_of(const struct metrics_config *c)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (c->console && !strcmp(dialects[i].name, c->console)) return &dialects[i];
    return &dialects[0];
}

bool metrics_want_parameter_norm(const struct metrics_config *c)
{
    return dialect_of(c)->parameter_norm;
}

void metrics_end(struct metrics *m)
{
    text_clear(&m->text);
    megatron_summary(&m->text, &m->means, &m->options);
    if (m->text.len) log_line(LOG_INFO, "%s", m->text.data);
}

static enum status tail_open(struct tail *t, int flags)
{
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (t->fd < 0) FAIL(IO, "%s: %s", t->path, strerror(errno));
    TRY(file_size(t->path, &t->end));
    return STATUS_OK;
}

static enum status tail_add(struct tail *t, const struct text *piece)
{
    TRY(file_write_at(t->fd, t->path, piece->data, piece->len, t->end));
    t->end += piece->len;
    return STATUS_OK;
}

static void tail_close(struct tail *t)
{
    if (t->fd >= 0) close(t->fd);
    free(t->path);
    *t = (struct tail){.fd = -1};
}

static enum status open_lines(struct metrics *m)
{
    size_t num_cut;
    m->lines.path = file_join(m->options.dump_folder, "metrics.jsonl");
    TRY(history_cut(m->lines.path, m->options.first_step, &num_cut));
    if (num_cut)
        log_line(LOG_INFO, "%s: cut %zu lines of steps after %lld, which this run does again",
                 m->lines.path, num_cut, (long long)m->options.first_step);
    TRY(tail_open(&m->lines, 0));
    return STATUS_OK;
}

static enum status open_events(struct metrics *m)
{
    enum { TRIES = 1000 };
    struct text name = {0};
    double now = clock_wall_s();
    char *folder = file_join(m->options.dump_folder, m->options.config->save_tb_folder);
    enum status st = STATUS_OK;
    TRY_OUT(file_make_dirs(folder));
    /* Two starts of one second, in containers where both have the same process id, differ in it. */
    for (int i = 0; i < TRIES && !m->events.path; i++) {
        text_clear(&name);
        event_file_name(&name, now, i);
        char *path = file_join(folder, name.data);
        if (file_exists(path))
            free(path);
        else
            m->events.path = path;
    }
    if (!m->events.path) FAIL_OUT(IO, "%s: no name is free for an event file", folder);
    TRY_OUT(tail_open(&m->events, O_EXCL));
    text_clear(&m->text);
    event_add_version(&m->text, now);
    event_add_start(&m->text, m->options.first_step + 1, now);
    TRY_OUT(tail_add(&m->events, &m->text));
out:
    free(folder);
    text_release(&name);
    return st;
}

enum status metrics_open(struct metrics **out, const struct metrics_options *o)
{
    enum { ROOM = 1 << 14 }; /* many times what the longest record takes */
    struct metrics *m = heap(sizeof *m);
    m->options = *o;
    m->dialect = dialect_of(o->config);
    m->begin_s = clock_monotonic_s();
    m->colour = log_colour() && !o->config->disable_color_printing;
    m->lines.fd = m->events.fd = -1;
    text_reserve(&m->text, ROOM);
    tzset(); /* the time zone is read now, not in a step */
    *out = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(file_make_dirs(o->dump_folder));
    TRY_OUT(open_lines(m));
    if (o->config->enable_tensorboard) TRY_OUT(open_events(m));
    *out = m;
    return STATUS_OK;
out:
    metrics_close(m);
    return st;
}

void metrics_close(struct metrics *m)
{
    if (!m) return;
    tail_close(&m->events);
    tail_close(&m->lines);
    text_release(&m->text);
    free(m);
}

static void add_number(struct text *t, const char *key, double value)
{
    if (isfinite(value))
        text_addf(t, ",\"%s\":%.9g", key, value);
    else
        text_addf(t, ",\"%s\":null", key);
}

static enum status add_line(struct metrics *m, const struct step_metrics *s,
                            const struct figures *f)
{
    struct text *t = &m->text;
    text_clear(t);
    text_addf(t, "{\"step\":%lld", (long long)s->step);
    add_number(t, "loss", s->loss);
    add_number(t, "max_loss", s->max_loss);
    add_number(t, "grad_norm", s->grad_norm);
    add_number(t, "lr", s->lr);
    text_addf(t, ",\"tokens_seen\":%lld", (long long)s->tokens_seen);
    add_number(t, "tokens_per_second", f->tokens_per_second);
    add_number(t, "tokens_per_second_per_rank", f->tokens_per_second_per_rank);
    add_number(t, "tflops_per_rank", f->tflops_per_rank);
    add_number(t, "mfu", f->mfu);
    add_number(t, "step_seconds", f->step_seconds);
    add_number(t, "data_seconds", f->data_seconds);
    text_addf(t, ",\"memory_bytes\":%lld}\n", (long long)s->memory_bytes);
    TRY(tail_add(&m->lines, t));
    return STATUS_OK;
}

static enum status add_events(struct metrics *m, int64_t step, const struct event_scalar *s,
                              int count)
{
    if (m->events.fd < 0) return STATUS_OK;
    text_clear(&m->text);
    event_add_scalars(&m->text, step, clock_wall_s(), s, count);
    TRY(tail_add(&m->events, &m->text));
    return STATUS_OK;
}

enum status metrics_step(struct metrics *m, const struct step_metrics *s)
{
    struct figures f = figures_make(&m->options, s);
    /* torchtitan's tags.  There is one number for memory here: what is active is what is held, and
     * an allocation that fails is not tried again. */
    const struct event_scalar scalars[] = {
        {"loss_metrics/global_avg_loss", s->loss},
        {"loss_metrics/global_max_loss", s->max_loss},
        {"grad_norm", s->grad_norm},
        {"throughput(tps)", f.tokens_per_second_per_rank},
        {"tflops", f.tflops_per_rank},
        {"time_metrics/end_to_end(s)", f.step_seconds},
        {"time_metrics/data_loading(s)", f.data_seconds},
        {"time_metrics/data_loading(%)", 100 * f.data_share},
        {"memory/max_active(GiB)", f.memory_gib},
        {"memory/max_active(%)", 100 * f.memory_share},
        {"memory/max_reserved(GiB)", f.memory_gib},
        {"memory/max_reserved(%)", 100 * f.memory_share},
        {"memory/num_alloc_retries", 0},
        {"memory/num_ooms", 0},
        {"n_tokens_seen", (double)s->tokens_seen},
        {"lr", s->lr},
        {"mfu(%)", 100 * f.mfu}, /* last: it is left out where it is not known */
    };
    int count = (int)(sizeof scalars / sizeof *scalars) - (isnan(f.mfu) ? 1 : 0);
    pace_add(&m->pace, s->seconds, s->steps);
    text_clear(&m->text);
    m->dialect->step(m, s, &f);
    log_line(LOG_INFO, "%s", m->text.data);
    TRY(add_line(m, s, &f));
    TRY(add_events(m, s->step, scalars, count));
    return STATUS_OK;
}

enum status metrics_validation(struct metrics *m, int64_t step, double loss, double seconds,
                               int64_t tokens, int64_t memory_bytes)
{
    struct step_metrics s = {.step = step,
                             .tokens = tokens,
                             .steps = 1,
                             .seconds = seconds,
                             .memory_bytes = memory_bytes};
    struct figures f = figures_make(&m->options, &s);
    const struct event_scalar scalars[] = {
        {"validation_metrics/loss", loss},
        {"validation_metrics/throughput(tps)", f.tokens_per_second_per_rank},
        {"validation_metrics/memory/max_active(GiB)", f.memory_gib},
        {"validation_metrics/memory/max_active(%)", 100 * f.memory_share},
        {"validation_metrics/memory/max_reserved(GiB)", f.memory_gib},
        {"validation_metrics/memory/max_reserved(%)", 100 * f.memory_share},
    };
    text_clear(&m->text);
    m->dialect->validation(m, step, loss, &f);
    log_line(LOG_INFO, "%s", m->text.data);
    text_clear(&m->text);
    text_addf(&m->text, "{\"step\":%lld", (long long)step);
    add_number(&m->text, "validation_loss", loss);
    text_adds(&m->text, "}\n");
    TRY(tail_add(&m->lines, &m->text));
    TRY(add_events(m, step, scalars, sizeof scalars / sizeof *scalars));
    return STATUS_OK;
}
