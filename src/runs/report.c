// SPDX-License-Identifier: Apache-2.0
#include "runs/report.h"

#include "base/json.h"
#include "plot/metric_label.h"
#include "runs/run_cell.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The lines of report.html. */
static const char *const page[] = {
#include "runs/report.inc"
    NULL,
};

size_t report_thin(double *x, double *y, size_t count, size_t most)
{
    size_t kept = 1, groups = most / 2 - 1, inner = count > 2 ? count - 2 : 0;
    if (count <= most) return count;
    for (size_t g = 0; g < groups; g++) {
        size_t begin = 1 + inner * g / groups, end = 1 + inner * (g + 1) / groups;
        size_t low = begin, high = begin;
        for (size_t i = begin + 1; i < end; i++) {
            if (y[i] < y[low] || (isnan(y[low]) && !isnan(y[i]))) low = i;
            if (isnan(y[i]) ? !isnan(y[high]) : y[i] > y[high]) high = i;
        }
        size_t first = low < high ? low : high, second = low < high ? high : low;
        x[kept] = x[first], y[kept++] = y[first];
        if (second == first) continue;
        x[kept] = x[second], y[kept++] = y[second];
    }
    x[kept] = x[count - 1], y[kept++] = y[count - 1];
    return kept;
}

static void write_numbers(struct json_writer *w, const char *key, const double *all, size_t count)
{
    json_begin_array(w, key, JSON_COMPACT);
    for (size_t i = 0; i < count; i++) json_write_format(w, NULL, "%.7g", all[i]);
    json_end_array(w);
}

static double *copy_numbers(const double *from, size_t count)
{
    double *to = heap_grow(NULL, count + 1, sizeof *to);
    if (count) memcpy(to, from, count * sizeof *to);
    return to;
}

static void write_series(struct json_writer *w, const struct run_series *s)
{
    double *steps = copy_numbers(s->steps, s->count), *values = copy_numbers(s->values, s->count);
    size_t count = report_thin(steps, values, s->count, REPORT_POINTS);
    double scale;
    const char *label = metric_label(s->key, &scale);
    for (size_t i = 0; i < count; i++) values[i] *= scale;
    json_begin_object(w, NULL, JSON_COMPACT);
    json_write_string(w, "key", s->key);
    json_write_string(w, "label", label);
    json_write_int(w, "count", (int64_t)s->count);
    json_begin_array(w, "steps", JSON_COMPACT);
    for (size_t i = 0; i < count; i++) json_write_format(w, NULL, "%.0f", steps[i]);
    json_end_array(w);
    write_numbers(w, "values", values, count);
    json_end_object(w);
    free(steps), free(values);
}

static void write_settings(struct json_writer *w, const struct run_settings *s)
{
    json_begin_object(w, "settings", JSON_COMPACT);
    for (size_t i = 0; i < s->count; i++) json_write_string(w, s->all[i].key, s->all[i].value);
    json_end_object(w);
}

static void write_checkpoints(struct json_writer *w, const struct run_folder *r)
{
    json_begin_array(w, "checkpoints", JSON_LINES);
    for (size_t i = 0; i < r->num_checkpoints; i++) {
        const struct folder_checkpoint *c = &r->checkpoints[i];
        json_begin_object(w, NULL, JSON_COMPACT);
        json_write_int(w, "step", c->step);
        json_write_real(w, "written", c->written_s > 0 ? c->written_s : NAN);
        json_write_int(w, "bytes", (int64_t)run_folder_checkpoint_bytes(r, c->step));
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_log(struct json_writer *w, const struct run_log *l)
{
    size_t count = run_log_count(l);
    json_write_int(w, "dropped_lines", run_log_num_dropped(l, count));
    json_begin_array(w, "log", JSON_LINES);
    for (size_t i = 0; i < count; i++) json_write_string(w, NULL, run_log_line(l, i));
    json_end_array(w);
}

static void write_starts(struct json_writer *w, const struct run_folder *r)
{
    json_begin_array(w, "starts", JSON_LINES);
    for (size_t i = 0; i < r->log.num_starts; i++) {
        json_begin_array(w, NULL, JSON_COMPACT);
        for (size_t k = 0; k < r->log.starts[i].num_lines; k++)
            json_write_string(w, NULL, r->log.starts[i].lines[k]);
        json_end_array(w);
    }
    json_end_array(w);
    json_begin_array(w, "rollbacks", JSON_COMPACT);
    for (size_t i = 0; i < r->metrics.num_rollbacks; i++) {
        json_begin_object(w, NULL, JSON_COMPACT);
        json_write_int(w, "from", r->metrics.rollbacks[i].from);
        json_write_int(w, "to", r->metrics.rollbacks[i].to);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_summary(struct json_writer *w, const struct run_folder *r, double now_s)
{
    static const char *const columns[] = {
#define X(name, text) #name,
        RUN_COLUMNS(X)
#undef X
    };
    json_begin_object(w, "summary", JSON_COMPACT);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        struct run_cell c = run_cell_of(r, columns[i], now_s);
        if (c.kind == RUN_CELL_number)
            json_write_real(w, columns[i], c.number);
        else if (c.kind == RUN_CELL_text)
            json_write_string(w, columns[i], c.text);
    }
    json_end_object(w);
    json_write_string(w, "state_text", run_state_text(r->state));
    json_write_string(w, "problems", r->problems.data);
}

static void write_run(struct json_writer *w, const struct report_run *run, double now_s)
{
    const struct run_folder *r = run->folder;
    json_begin_object(w, NULL, JSON_LINES);
    json_write_string(w, "title", r->title);
    json_write_string(w, "name", r->name);
    write_summary(w, r, now_s);
    json_begin_array(w, "series", JSON_LINES);
    for (size_t i = 0; i < r->metrics.num_series; i++) write_series(w, &r->metrics.series[i]);
    json_end_array(w);
    write_settings(w, &r->settings);
    write_checkpoints(w, r);
    json_begin_array(w, "samples", JSON_LINES);
    for (size_t i = 0; i < run->num_samples; i++) {
        json_begin_object(w, NULL, JSON_COMPACT);
        json_write_string(w, "prompt", run->samples[i].prompt);
        json_write_string(w, "text", run->samples[i].text);
        json_end_object(w);
    }
    json_end_array(w);
    write_starts(w, r);
    write_log(w, &r->log);
    json_end_object(w);
}

/* In HTML, "</script" or "<!--" within a string would end or change the script: "<" occurs only
 * there, and may be escaped. */
static void add_json(struct text *out, const struct text *json)
{
    for (const char *at = json->data, *end = at + json->len; at < end;) {
        const char *special = memchr(at, '<', (size_t)(end - at));
        text_add(out, at, (size_t)((special ? special : end) - at));
        if (!special) return;
        text_adds(out, "\\u003c");
        at = special + 1;
    }
}

static void write_data(const struct report_run *runs, size_t count, double now_s, struct text *out)
{
    struct text json = {0};
    struct json_writer w = {.text = &json};
    json_begin_object(&w, NULL, JSON_LINES);
    json_write_string(&w, "version", LLAMERO_VERSION);
    json_write_real(&w, "now", now_s);
    json_begin_array(&w, "runs", JSON_LINES);
    for (size_t i = 0; i < count; i++) write_run(&w, &runs[i], now_s);
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    add_json(out, &json);
    text_release(&json);
}

void report_page(const struct report_run *runs, size_t count, double now_s, struct text *out)
{
    for (const char *const *line = page; *line; line++) {
        if (strcmp(*line, "DATA\n"))
            text_adds(out, *line);
        else
            write_data(runs, count, now_s, out);
    }
}
