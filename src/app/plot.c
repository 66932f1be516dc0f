/* plot.c -- plots metrics of one or several runs, on the terminal or as SVG. */
// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "base/color.h"
#include "base/file.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/text.h"
#include "plot/chart.h"
#include "plot/metric_label.h"
#include "runs/run_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct usage usage = {
    "plot",
    {{NULL, {USAGE_SOME(FILE, "RUN"), USAGE_FLAGS("[flags]")}}},
    "Plots what runs logged.  RUN is a dump folder or a metrics.jsonl.  The loss includes the\n"
    "validation loss, if any.  Other keys are those of metrics.jsonl: grad_norm, lr,\n"
    "tokens_per_second, mfu, ...; and scores of evaluation tasks, such as piqa/acc.  Steps that a\n"
    "rollback went back over are not plotted.",
};

struct plot_flags {
    const char *key, *svg, *title;
    int64_t width, height, smooth, from;
    bool log;
};

/* One curve: the points that the flags select, in the plot's unit.  Owned. */
struct curve {
    double *steps, *values;
    double *smoothed; /* or NULL */
    char *name;
};

struct plot {
    const struct arguments *runs; /* a word per run */
    const struct plot_flags *flags;
    double scale; /* of flags->key */
    struct curve *curves;
    struct chart_line *lines;
    int num_curves;
    bool is_known;    /* a run has numbers of the key, whether they are plotted or not */
    struct text keys; /* of the first run, for messages */
};

static void curve_release(struct curve *c)
{
    free(c->steps), free(c->values), free(c->smoothed);
    free(c->name);
}

static void plot_release(struct plot *p)
{
    for (int i = 0; i < p->num_curves; i++) curve_release(&p->curves[i]);
    free(p->curves), free(p->lines);
    text_release(&p->keys);
}

/* The name of a run's folder. */
static char *folder_name(const char *word)
{
    static const char file[] = "/metrics.jsonl";
    size_t len = strlen(word), tail = sizeof file - 1;
    if (len > tail && !strcmp(word + len - tail, file)) len -= tail;
    while (len > 1 && word[len - 1] == '/') len--;
    const char *slash = memrchr(word, '/', len);
    const char *from = slash && slash + 1 < word + len ? slash + 1 : word;
    return heap_string(from, (size_t)(word + len - from));
}

/* Curves of a single run are named by their keys, those of several runs by their folders, or by the
 * whole path if two folders have the same name. */
static char *name_of(const struct arguments *a, int run, const char *key, bool validation)
{
    if (a->num_words == 1) key = validation ? "validation" : key;
    if (a->num_words == 1) return heap_strdup(key);
    struct text name = {0};
    char *mine = folder_name(a->words[run]);
    bool shared = false;
    for (int i = 0; i < a->num_words && !shared; i++) {
        char *other = folder_name(a->words[i]);
        shared = i != run && !strcmp(mine, other);
        free(other);
    }
    text_addf(&name, "%s%s", shared ? a->words[run] : mine, validation ? " validation" : "");
    free(mine);
    return name.data;
}

static bool has_number(const struct run_series *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (isfinite(s->values[i])) return true;
    return false;
}

/* Copies the points from step --from on, with --log those that are positive, scaled.  Returns their
 * number. */
static size_t select_points(struct curve *c, const struct run_series *s, const struct plot_flags *f,
                            double scale)
{
    size_t kept = 0;
    c->steps = heap_grow(NULL, s->count + 1, sizeof *c->steps);
    c->values = heap_grow(NULL, s->count + 1, sizeof *c->values);
    for (size_t i = 0; i < s->count; i++) {
        if (s->steps[i] < (double)f->from || (f->log && !(s->values[i] > 0))) continue;
        if (!(fabs(s->values[i] * scale) <= 1e290)) continue; /* keeps sums finite */
        c->steps[kept] = s->steps[i];
        c->values[kept++] = s->values[i] * scale;
    }
    return kept;
}

/* Adds the curve of `key`, which is that of the plot or its validation loss, if it has points. */
static void add_curve(struct plot *p, int run, const struct run_metrics *m, const char *key)
{
    const struct arguments *a = p->runs;
    const struct plot_flags *f = p->flags;
    const struct run_series *s = run_metrics_find(m, key);
    bool validation = strcmp(key, f->key) != 0;
    struct curve c = {0};
    if (!s) return;
    p->is_known |= has_number(s);
    size_t count = select_points(&c, s, f, validation ? 1 : p->scale);
    if (!count) {
        curve_release(&c);
        return;
    }
    c.name = name_of(a, run, key, validation);
    if (!validation && f->smooth > 1) {
        c.smoothed = heap_grow(NULL, count, sizeof *c.smoothed);
        chart_smooth(c.values, count, (size_t)f->smooth, c.smoothed);
    }
    p->curves = heap_grow(p->curves, (size_t)p->num_curves + 1, sizeof *p->curves);
    p->lines = heap_grow(p->lines, (size_t)p->num_curves + 1, sizeof *p->lines);
    p->curves[p->num_curves] = c;
    p->lines[p->num_curves++] =
        (struct chart_line){.name = c.name,
                            .x = c.steps,
                            .y = c.smoothed ? c.smoothed : c.values,
                            .raw = c.smoothed ? c.values : NULL,
                            .count = count,
                            .marks = validation,
                            .color = run + (validation && a->num_words == 1)};
}

static enum status fail_no_points(const struct plot *p)
{
    const char *run = p->runs->words[0], *key = p->flags->key;
    if (!p->keys.len) FAIL(DATA, "%s: no step has been logged", run);
    if (!p->is_known)
        FAIL(USAGE, "--key %s: %s: no such key; expected one of: %s", key, run, p->keys.data);
    FAIL(DATA, "%s: nothing to plot for --key %s within --from and --log", run, key);
}

static enum status check_run(const char *word)
{
    if (!file_exists(word)) FAIL(MISSING, "%s: no such dump folder or metrics.jsonl", word);
    if (!file_is_dir(word)) return STATUS_OK;
    TRY(run_folder_check(word));
    if (!file_exists_in(word, "metrics.jsonl")) FAIL(DATA, "%s: no step has been logged", word);
    return STATUS_OK;
}

/* Reads all that a run, a dump folder or a metrics.jsonl, has logged. */
static enum status read_metrics(struct run_metrics *m, const char *word)
{
    char *inside = file_is_dir(word) ? file_join(word, "metrics.jsonl") : NULL;
    enum status st = run_metrics_update(m, inside ? inside : word);
    free(inside);
    if (!st && m->is_partial)
        log_line(LOG_WARN, "%s: early steps are not plotted: metrics.jsonl is longer than %d MiB",
                 word, RUN_METRICS_BYTES >> 20);
    return st;
}

static enum status read_runs(struct plot *p)
{
    const struct arguments *a = p->runs;
    const char *key = p->flags->key;
    for (int run = 0; run < a->num_words; run++) {
        struct run_metrics m = {0};
        int before = p->num_curves;
        TRY(check_run(a->words[run]));
        enum status st = read_metrics(&m, a->words[run]);
        add_curve(p, run, &m, key);
        if (!strcmp(key, "loss")) add_curve(p, run, &m, "validation_loss");
        for (size_t i = 0; i < m.num_series && !run; i++)
            if (has_number(&m.series[i]))
                text_addf(&p->keys, "%s%s", p->keys.len ? " " : "", m.series[i].key);
        run_metrics_release(&m);
        TRY(st);
        if (p->num_curves == before && a->num_words > 1)
            log_line(LOG_WARN, "%s: nothing to plot", a->words[run]);
    }
    if (!p->num_curves) TRY(fail_no_points(p));
    return STATUS_OK;
}

static enum status check_flags(struct plot_flags *f)
{
    bool picture = *f->svg != 0;
    int columns = terminal_size(STDOUT_FILENO).columns;
    if (!f->width) f->width = picture ? 860 : columns >= 30 ? columns : 80;
    if (!f->height) f->height = picture ? 440 : 22;
    if (picture && f->width < 300)
        FAIL(USAGE, "--width: must be at least 300 with --svg, is %lld", (long long)f->width);
    if (picture && f->height < 200)
        FAIL(USAGE, "--height: must be at least 200 with --svg, is %lld", (long long)f->height);
    return STATUS_OK;
}

static enum status draw(const struct chart *c, const char *svg)
{
    struct text out = {0};
    enum status st = STATUS_OK;
    if (*svg) {
        chart_svg(c, &out);
    } else {
        chart_terminal(c, color_is_on(STDOUT_FILENO), &out);
    }
    if (*svg && strcmp(svg, "-"))
        st = file_write(svg, out.data, out.len);
    else
        fwrite(out.data, 1, out.len, stdout);
    text_release(&out);
    TRY(st);
    return STATUS_OK;
}

enum status command_plot(int argc, char **argv)
{
    struct plot_flags f = {.key = "loss", .svg = "", .title = ""};
    const struct flag flags[] = {
        {"key", FLAG_TEXT, &f.key, "metric to plot"},
        {"svg", FLAG_FILE, &f.svg, "write an SVG image to this file; -: to stdout"},
        {"smooth", FLAG_INT(0, 1000), &f.smooth, "moving average over this many points"},
        {"from", FLAG_INT(0, FLAG_UNLIMITED), &f.from, "omit earlier steps"},
        {"log", FLAG_SWITCH, &f.log, "logarithmic scale"},
        {"title", FLAG_TEXT, &f.title, "title of the plot"},
        {"width", FLAG_INT(30, 10000), &f.width,
         "characters (default: the terminal's) or pixels (860, at least 300)"},
        {"height", FLAG_INT(8, 10000), &f.height,
         "lines (default: 22) or pixels (440, at least 200)"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(check_flags(&f));
    struct chart c = {.title = *f.title ? f.title : NULL,
                      .x_label = "step",
                      .log_y = f.log,
                      .ascii = !color_is_utf8(),
                      .width = (int)f.width,
                      .height = (int)f.height};
    double scale;
    c.y_label = metric_label(f.key, &scale);
    struct plot p = {.runs = &a, .flags = &f, .scale = scale};
    enum status st = STATUS_OK;
    TRY_OUT(read_runs(&p));
    c.lines = p.lines;
    c.num_lines = p.num_curves;
    TRY_OUT(draw(&c, f.svg));
out:
    plot_release(&p);
    return st;
}
