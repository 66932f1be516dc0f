// SPDX-License-Identifier: Apache-2.0
#include "runs/top_frame.h"

#include "base/byte_size.h"
#include "plot/chart.h"
#include "plot/metric_label.h"
#include "runs/printable.h"
#include "runs/run_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 120, LEAST_CHART_ROWS = 8, LEAST_CHART_COLUMNS = 30 };

/* --- curves --- */

static const char *const first_curves[] = {
    "loss", "grad_norm", "lr", "tokens_per_second", "mfu", "step_seconds", "memory_bytes"};
enum { NUM_FIRST = sizeof first_curves / sizeof *first_curves };

/* What another curve shows, too, or only grows. */
static bool is_hidden(const char *key)
{
    return !strcmp(key, "validation_loss") || !strcmp(key, "tokens_seen");
}

static bool is_first(const char *key)
{
    for (int i = 0; i < NUM_FIRST; i++)
        if (!strcmp(key, first_curves[i])) return true;
    return false;
}

static bool has_points(const struct run_series *s)
{
    for (size_t i = 0; s && i < s->count; i++)
        if (isfinite(s->values[i])) return true;
    return false;
}

const char *top_frame_curve(const struct run_folder *r, int i)
{
    for (int k = 0; k < NUM_FIRST; k++)
        if (has_points(run_metrics_find(&r->metrics, first_curves[k])) && i-- == 0)
            return first_curves[k];
    for (size_t k = 0; k < r->metrics.num_series; k++) {
        const struct run_series *s = &r->metrics.series[k];
        if (!is_first(s->key) && !is_hidden(s->key) && has_points(s) && i-- == 0) return s->key;
    }
    return NULL;
}

int top_frame_num_curves(const struct run_folder *r)
{
    int n = 0;
    while (top_frame_curve(r, n)) n++;
    return n;
}

/* The finite points of a series in the chart's unit. */
struct top_points {
    double *x, *y; /* owned */
    size_t count;
};

static void points_release(struct top_points *p)
{
    free(p->x), free(p->y);
    *p = (struct top_points){0};
}

static void points_init(struct top_points *p, const struct run_folder *r, const char *key,
                        double scale)
{
    const struct run_series *s = run_metrics_find(&r->metrics, key);
    *p = (struct top_points){0};
    if (!s || !s->count) return;
    p->x = heap(s->count * sizeof *p->x);
    p->y = heap(s->count * sizeof *p->y);
    for (size_t i = 0; i < s->count; i++) {
        if (!(fabs(s->values[i] * scale) <= 1e290)) continue; /* keeps sums finite */
        p->x[p->count] = s->steps[i];
        p->y[p->count++] = s->values[i] * scale;
    }
}

/* A part of the screen. */
struct screen_area {
    int row, column, rows, columns;
};

/* Cuts the text after `lines` lines: a legend may take more than the chart has. */
static void keep_lines(struct text *t, int lines)
{
    char *at = t->data;
    for (int i = 0; at && i < lines; i++) at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    if (at) *at = 0, t->len = (size_t)(at - t->data);
}

static void draw_curve(const struct top_view *v, struct screen *s, struct screen_area a,
                       const char *key)
{
    struct top_points points, validation = {0};
    struct text out = {0};
    double scale;
    const char *label = metric_label(key, &scale);
    points_init(&points, v->run, key, scale);
    if (!strcmp(key, "loss")) points_init(&validation, v->run, "validation_loss", 1);
    const struct chart_line lines[] = {
        {.name = key, .x = points.x, .y = points.y, .count = points.count},
        {.name = "validation",
         .x = validation.x,
         .y = validation.y,
         .count = validation.count,
         .marks = true,
         .color = 1}};
    const struct chart c = {.x_label = "step",
                            .y_label = label,
                            .lines = lines,
                            .num_lines = validation.count ? 2 : 1,
                            .width = a.columns,
                            .height = a.rows,
                            .ascii = v->ascii};
    if (points.count) chart_terminal(&c, true, &out);
    keep_lines(&out, a.rows);
    screen_put_chart(s, (struct screen_place){a.row, a.column}, out.data ? out.data : "");
    text_release(&out);
    points_release(&points), points_release(&validation);
}

/* One chart; on a wide screen two, the second one of the speed or the gradient norm. */
static void draw_curves(const struct top_view *v, struct screen *s, struct screen_area a)
{
    const char *key = top_frame_curve(v->run, v->curve);
    if (!key) {
        screen_put(s, (struct screen_place){a.row + a.rows / 2, a.column + a.columns / 2 - 12},
                   STYLE_dim, "no step has been logged");
        return;
    }
    const char *other = strcmp(key, "tokens_per_second") ? "tokens_per_second" : "grad_norm";
    bool is_wide = a.columns >= WIDE && has_points(run_metrics_find(&v->run->metrics, other));
    struct screen_area left = a, right = a;
    if (is_wide) {
        left.columns = a.columns * 3 / 5;
        right.column += left.columns + 1;
        right.columns -= left.columns + 1;
        draw_curve(v, s, right, other);
    }
    draw_curve(v, s, left, key);
}

/* --- figures --- */

/* Where the next figure goes; figures follow each other from left to right, row by row. */
struct figure_flow {
    struct screen *screen;
    struct screen_place at;
    int end_row;
    struct text value;
};

/* Writes "label value", `value` being the flow's, and clears that. */
static void put_figure(struct figure_flow *f, const char *label, enum screen_style style)
{
    int width = (int)(printable_width(label) + 1 + printable_width(f->value.data));
    if (f->at.column && f->at.column + width > f->screen->columns) f->at.row++, f->at.column = 0;
    if (f->at.row < f->end_row) {
        f->at.column = screen_put(f->screen, f->at, STYLE_dim, label) + 1;
        f->at.column = screen_put(f->screen, f->at, style, f->value.data) + 3;
    }
    text_clear(&f->value);
}

/* Writes a metric's last value, if there is one. */
static void put_metric(struct figure_flow *f, const struct run_folder *r, const char *key,
                       const char *label)
{
    const struct run_series *s = run_metrics_find(&r->metrics, key);
    if (!s || !s->count) return;
    double value = s->values[s->count - 1];
    bool is_loss = strstr(key, "loss") != NULL;
    if (isfinite(value))
        text_addf(&f->value, is_loss ? "%.4f" : "%.3g", value);
    else
        text_adds(&f->value, "not finite");
    put_figure(f, label, isfinite(value) ? STYLE_bold : STYLE_red);
}

static void put_count(struct figure_flow *f, const struct run_folder *r, const char *key,
                      const char *label)
{
    double value = run_metrics_last(&r->metrics, key);
    if (!isfinite(value)) return;
    run_format_count(&f->value, value);
    put_figure(f, label, STYLE_bold);
}

static void put_losses(struct figure_flow *f, const struct run_folder *r)
{
    double best;
    int64_t step;
    put_metric(f, r, "loss", "loss");
    put_metric(f, r, "validation_loss", "validation");
    if (run_metrics_least(&r->metrics, "validation_loss", &best, &step)) {
        text_addf(&f->value, "%.4f at step %lld", best, (long long)step);
        put_figure(f, "best", STYLE_bold);
    }
    put_metric(f, r, "grad_norm", "grad norm");
    put_metric(f, r, "lr", "lr");
}

static bool ends_in(const char *string, const char *end)
{
    size_t len = strlen(string), tail = strlen(end);
    return len > tail && !strcmp(string + len - tail, end);
}

/* The time of a step, and which share each measured part has. */
static void put_step_time(struct figure_flow *f, const struct run_folder *r)
{
    static const char unit[] = "_seconds";
    double step_s = run_metrics_last(&r->metrics, "step_seconds"), known = 0;
    if (!(step_s > 0 && step_s < 1e12)) return;
    text_addf(&f->value, "%.3g s", step_s);
    int parts = 0;
    for (size_t i = 0; i < r->metrics.num_series; i++) {
        const char *key = r->metrics.series[i].key;
        double part_s = run_metrics_last(&r->metrics, key);
        if (!ends_in(key, unit) || !strcmp(key, "step_seconds") || !(part_s >= 0)) continue;
        if (!(part_s <= step_s) || parts == 4) continue;
        text_addf(&f->value, "%s%.*s %.1f%%", parts++ ? ", " : " (",
                  (int)(strlen(key) - strlen(unit)), key, 100 * part_s / step_s);
        known += part_s;
    }
    if (parts) text_addf(&f->value, ", other %.1f%%)", 100 * fmax(1 - known / step_s, 0));
    put_figure(f, "step", STYLE_bold);
}

static void put_machine(struct figure_flow *f, const struct run_folder *r)
{
    double mfu = run_metrics_last(&r->metrics, "mfu");
    double memory = run_metrics_last(&r->metrics, "memory_bytes");
    put_count(f, r, "tokens_per_second", "tokens/s");
    int64_t ranks = run_folder_ranks(r);
    if (ranks > 1) put_count(f, r, "tokens_per_second_per_rank", "per rank");
    put_step_time(f, r);
    if (isfinite(mfu)) {
        text_addf(&f->value, "%.1f%%", 100 * mfu);
        put_figure(f, "mfu", STYLE_bold);
    }
    put_metric(f, r, "tflops_per_rank", "TFLOP/s per rank");
    if (isfinite(memory)) {
        text_adds(&f->value, byte_size_format(memory).text);
        put_figure(f, "memory", STYLE_bold);
    }
    if (ranks) {
        text_addf(&f->value, "%lld", (long long)ranks);
        put_figure(f, "ranks", STYLE_bold);
    }
    put_count(f, r, "tokens_seen", "tokens");
}

/* The newest checkpoints' steps, and when the last one was written. */
static void put_checkpoints(struct figure_flow *f, const struct top_view *v)
{
    enum { SHOWN = 4 };
    const struct run_folder *r = v->run;
    size_t n = r->num_checkpoints, first = n > SHOWN ? n - SHOWN : 0;
    for (size_t i = first; i < n; i++) {
        const struct folder_checkpoint *k = &r->checkpoints[i];
        text_addf(&f->value, "%s%lld%s",
                  i > first ? ", "
                  : first   ? "..., "
                            : "",
                  (long long)k->step, k->written_s > 0 ? "" : " (incomplete)");
    }
    if (n && r->checkpoints[n - 1].written_s > 0) {
        text_adds(&f->value, " (");
        run_format_age(&f->value, fmax(v->now_s - r->checkpoints[n - 1].written_s, 0));
        text_adds(&f->value, " ago)");
    }
    if (!n) text_adds(&f->value, "none");
    put_figure(f, "checkpoints", STYLE_bold);
}

static void put_troubles(struct figure_flow *f, const struct run_folder *r)
{
    if (r->metrics.num_rollbacks) {
        const struct run_rollback *last = &r->metrics.rollbacks[r->metrics.num_rollbacks - 1];
        text_addf(&f->value, "%zu (last from step %lld to %lld)", r->metrics.num_rollbacks,
                  (long long)last->from, (long long)last->to);
        put_figure(f, "rollbacks", STYLE_yellow);
    }
    if (r->metrics.num_bad_lines || r->metrics.num_gap_lines) {
        text_addf(&f->value, "%zu unreadable, %lld missing", r->metrics.num_bad_lines,
                  (long long)r->metrics.num_gap_lines);
        put_figure(f, "lines of metrics.jsonl", STYLE_yellow);
    }
    if (r->metrics.is_partial) {
        text_adds(&f->value, "not shown, the file is too long");
        put_figure(f, "early steps", STYLE_yellow);
    }
}

static void put_line(struct figure_flow *f, enum screen_style style, const char *line)
{
    if (f->at.column) f->at.row++, f->at.column = 0;
    if (f->at.row < f->end_row) screen_put(f->screen, f->at, style, line);
    f->at.row++;
}

/* The last warning in the log, such as that of a slow rank; the error of a failed run; and what
 * could not be read. */
static void put_messages(struct figure_flow *f, const struct run_folder *r)
{
    const char *warning = NULL;
    for (size_t i = run_log_count(&r->log); i-- > 0 && !warning;)
        warning = strstr(run_log_line(&r->log, i), "warning: ");
    if (warning) put_line(f, STYLE_yellow, warning);
    if (r->error) {
        text_addf(&f->value, "error: %s", r->error);
        put_line(f, STYLE_red, f->value.data);
        text_clear(&f->value);
    }
    for (const char *at = r->problems.data; r->problems.len && *at; at += *at == '\n') {
        size_t len = strcspn(at, "\n");
        text_add(&f->value, at, len);
        put_line(f, STYLE_red, f->value.data);
        text_clear(&f->value);
        at += len;
    }
}

/* Returns the row after the last one. */
static int put_figures(const struct top_view *v, struct screen *s, int row, int end_row)
{
    struct figure_flow f = {.screen = s, .at = {row, 0}, .end_row = end_row};
    text_reserve(&f.value, 80);
    put_losses(&f, v->run);
    f.at = (struct screen_place){f.at.row + (f.at.column > 0), 0};
    put_machine(&f, v->run);
    f.at = (struct screen_place){f.at.row + (f.at.column > 0), 0};
    put_checkpoints(&f, v);
    put_troubles(&f, v->run);
    put_messages(&f, v->run);
    text_release(&f.value);
    int next = f.at.row + (f.at.column > 0);
    return next < end_row ? next : end_row;
}

/* --- title, progress, log, keys --- */

static const enum screen_style state_styles[NUM_RUN_STATES] = {
    [RUN_running] = STYLE_green,  [RUN_stalled] = STYLE_red, [RUN_finished] = STYLE_cyan,
    [RUN_stopped] = STYLE_yellow, [RUN_failed] = STYLE_red,  [RUN_killed] = STYLE_red};

static void put_title(const struct top_view *v, struct screen *s)
{
    const struct run_folder *r = v->run;
    struct text age = {0};
    const char *state = run_state_name(r->state);
    if (r->written_s > 0) {
        text_adds(&age, "wrote ");
        run_format_age(&age, fmax(v->now_s - r->written_s, 0));
        text_adds(&age, " ago");
    }
    int right = (int)(age.len + strlen(state) + 4);
    int room = s->columns > right + 8 ? s->columns - right : s->columns;
    struct text title = {0};
    printable_fit(&title, r->title, (size_t)room);
    while (title.len && title.data[title.len - 1] == ' ') title.data[--title.len] = 0;
    int column = screen_put(s, (struct screen_place){0, 0}, STYLE_bold, title.data);
    column = screen_put(s, (struct screen_place){0, column + 2}, state_styles[r->state], state);
    if (age.len) screen_put(s, (struct screen_place){0, column + 2}, STYLE_dim, age.data);
    text_release(&age), text_release(&title);
}

static void put_progress(const struct top_view *v, struct screen *s)
{
    const struct run_folder *r = v->run;
    struct text t = {0};
    int64_t step = r->metrics.last_step > 0 ? r->metrics.last_step : 0;
    double eta_s = r->state == RUN_running ? run_folder_eta_s(r) : NAN;
    text_addf(&t, "step %lld", (long long)step);
    double share = r->last_step ? fmin((double)step / (double)r->last_step, 1) : 0;
    if (r->last_step) text_addf(&t, "/%lld  %.0f%%", (long long)r->last_step, 100 * share);
    if (isfinite(eta_s)) text_adds(&t, "  eta "), run_format_age(&t, eta_s);
    int column = screen_put(s, (struct screen_place){1, 0}, STYLE_plain, t.data) + 2;
    text_release(&t);
    int width = s->columns - column - 2;
    if (width < 8 || !r->last_step) return;
    int full = (int)(share * width + 0.5);
    column = screen_put(s, (struct screen_place){1, column}, STYLE_dim, "[");
    for (int i = 0; i < width; i++)
        column = screen_put(s, (struct screen_place){1, column}, i < full ? STYLE_green : STYLE_dim,
                            i < full ? "=" : "-");
    screen_put(s, (struct screen_place){1, column}, STYLE_dim, "]");
}

static enum screen_style log_style(const char *line)
{
    if (strstr(line, " error: ")) return STYLE_red;
    return strstr(line, " warning: ") ? STYLE_yellow : STYLE_plain;
}

static void put_log(const struct top_view *v, struct screen *s, int row, int end_row)
{
    const struct run_log *l = &v->run->log;
    int rows = end_row - row - 1;
    if (rows < 1) return;
    size_t count = run_log_count(l), shown = count < (size_t)rows ? count : (size_t)rows;
    int64_t num_dropped = run_log_num_dropped(l, shown);
    struct text t = {0};
    text_adds(&t, "log.txt");
    if (num_dropped > 0)
        text_addf(&t, " (after %lld earlier line%s)", (long long)num_dropped,
                  num_dropped == 1 ? "" : "s");
    if (num_dropped < 0) text_adds(&t, " (its end)");
    screen_put(s, (struct screen_place){row, 0}, STYLE_dim, t.data);
    text_release(&t);
    for (size_t i = 0; i < shown; i++) {
        const char *line = run_log_line(l, count - shown + i);
        screen_put(s, (struct screen_place){row + 1 + (int)i, 0}, log_style(line),
                   run_log_undated(line, true));
    }
}

/* The curve that is shown, and those after it. */
static void put_keys(const struct top_view *v, struct screen *s)
{
    struct screen_place at = {s->rows - 1, 0};
    int count = top_frame_num_curves(v->run);
    at.column = screen_put(s, at, STYLE_dim, "q quit  tab, arrows: curve  ");
    for (int i = 0; i < count; i++) {
        const char *key = top_frame_curve(v->run, (v->curve + i) % count);
        if (at.column + (int)printable_width(key) > s->columns) break;
        at.column = screen_put(s, at, i ? STYLE_dim : STYLE_reverse, key) + 1;
    }
}

void top_frame(const struct top_view *v, struct screen *s)
{
    enum { HEAD = 2, FIGURES = 5, LOG = 4 };
    int end = s->rows - (v->has_keys && s->rows > 4);
    put_title(v, s);
    put_progress(v, s);
    int chart_rows = s->rows / 2 - (s->rows < 30);
    bool has_chart = chart_rows >= LEAST_CHART_ROWS && s->columns >= LEAST_CHART_COLUMNS;
    if (!has_chart) chart_rows = 0;
    if (has_chart) draw_curves(v, s, (struct screen_area){HEAD, 0, chart_rows, s->columns});
    int row = HEAD + chart_rows;
    int limit = end - LOG > row + FIGURES ? end - LOG : end;
    row = put_figures(v, s, row, limit < row + 8 ? limit : row + 8);
    put_log(v, s, row, end);
    if (end < s->rows) put_keys(v, s);
}
