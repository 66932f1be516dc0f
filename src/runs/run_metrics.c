// SPDX-License-Identifier: Apache-2.0
#include "runs/run_metrics.h"

#include "base/json.h"
#include "runs/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct run_series *run_metrics_find(const struct run_metrics *m, const char *key)
{
    for (size_t i = 0; i < m->num_series; i++)
        if (!strcmp(m->series[i].key, key)) return &m->series[i];
    return NULL;
}

double run_metrics_last(const struct run_metrics *m, const char *key)
{
    const struct run_series *s = run_metrics_find(m, key);
    return s && s->count ? s->values[s->count - 1] : NAN;
}

bool run_metrics_least(const struct run_metrics *m, const char *key, double *value, int64_t *step)
{
    const struct run_series *s = run_metrics_find(m, key);
    bool has = false;
    for (size_t i = 0; s && i < s->count; i++)
        if (isfinite(s->values[i]) && (!has || s->values[i] < *value))
            has = true, *value = s->values[i], *step = (int64_t)s->steps[i];
    return has;
}

static struct run_series *find_or_add(struct run_metrics *m, const char *key)
{
    struct run_series *s = (struct run_series *)run_metrics_find(m, key);
    if (s || m->num_series == RUN_METRICS_KEYS) return s;
    m->series = heap_grow(m->series, m->num_series + 1, sizeof *m->series);
    s = &m->series[m->num_series++];
    *s = (struct run_series){.key = heap_strdup(key)};
    return s;
}

static void cut_after(struct run_series *s, double step)
{
    while (s->count && s->steps[s->count - 1] > step) s->count--;
}

static void add_value(struct run_metrics *m, const char *key, int64_t step, double value)
{
    struct run_series *s = find_or_add(m, key);
    if (!s) return;
    cut_after(s, (double)step - 1);
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 16;
        s->steps = heap_grow(s->steps, s->capacity, sizeof *s->steps);
        s->values = heap_grow(s->values, s->capacity, sizeof *s->values);
    }
    s->steps[s->count] = (double)step;
    s->values[s->count++] = isfinite(value) ? value : NAN;
}

static void add_rollback(struct run_metrics *m, int64_t from, int64_t to)
{
    for (size_t i = 0; i < m->num_series; i++) cut_after(&m->series[i], (double)to);
    m->rollbacks = heap_grow(m->rollbacks, m->num_rollbacks + 1, sizeof *m->rollbacks);
    m->rollbacks[m->num_rollbacks++] = (struct run_rollback){from, to};
    m->last_step = to;
}

/* Adds the numbers of a line's object; those of a task under its name. */
static void add_values(struct run_metrics *m, const struct json *line, int64_t step)
{
    const struct json *task = json_get(line, "task");
    char *prefix = NULL;
    if (json_is_string(task)) {
        const char *name = json_string(task);
        prefix = printable_string(name, strlen(name), 200);
    }
    for (const struct json *v = json_first(line); v; v = json_next(v)) {
        if ((!json_is_number(v) && !json_is_null(v)) || !strcmp(json_key(v), "step")) continue;
        struct text key = {0};
        if (prefix) text_addf(&key, "%s/", prefix);
        printable_adds(&key, json_key(v));
        if (key.len) add_value(m, key.data, step, json_is_number(v) ? json_number(v) : NAN);
        text_release(&key);
    }
    free(prefix);
}

static void add_line(struct run_metrics *m, const char *bytes, size_t len)
{
    struct json *line = NULL;
    int64_t step, other;
    if (json_parse(bytes, len, "line", &line) ||
        !json_as_int(json_get(line, "step"), 0, JSON_MAX_INT, &step)) {
        m->num_bad_lines++;
    } else if (json_as_int(json_get(line, "rollback_from"), 0, JSON_MAX_INT, &other)) {
        add_rollback(m, other, step);
    } else if (json_as_int(json_get(line, "gap"), 0, JSON_MAX_INT, &other)) {
        if (m->num_gap_lines < JSON_MAX_INT) m->num_gap_lines += other;
    } else if (!json_get(line, "rows_skipped")) {
        add_values(m, line, step);
        if (json_get(line, "loss") || step > m->last_step) m->last_step = step;
    }
    json_free(line);
}

static void add_pending(struct run_metrics *m)
{
    if (m->pending.len) add_line(m, m->pending.data, m->pending.len);
    text_clear(&m->pending);
}

static bool contains(const char *bytes, size_t len, const char *word)
{
    return memmem(bytes, len, word, strlen(word)) != NULL;
}

/* Parses only the last of consecutive lines with a loss. */
static void visit_line(void *context, const char *bytes, size_t len)
{
    struct run_metrics *m = context;
    if (!m->is_summary || !contains(bytes, len, "\"loss\":") || contains(bytes, len, "\"task\"") ||
        contains(bytes, len, "\"validation_loss\"") || bytes[len - 1] != '}') {
        /* A rollback goes back to a step whose line must have been parsed: read everything. */
        if (m->is_summary && contains(bytes, len, "\"rollback_from\"")) m->is_summary = false;
        add_pending(m);
        add_line(m, bytes, len);
        return;
    }
    text_clear(&m->pending);
    text_add(&m->pending, bytes, len);
}

static void forget(void *context)
{
    struct run_metrics *m = context;
    for (size_t i = 0; i < m->num_series; i++)
        free(m->series[i].key), free(m->series[i].steps), free(m->series[i].values);
    free(m->series);
    free(m->rollbacks);
    m->series = NULL, m->rollbacks = NULL;
    m->num_series = m->num_rollbacks = m->num_bad_lines = 0;
    m->num_gap_lines = 0;
    m->last_step = -1;
    text_clear(&m->pending);
}

enum status run_metrics_update(struct run_metrics *m, const char *path)
{
    const struct file_tail_visitor v = {m, visit_line, forget};
    bool was_summary = m->is_summary;
    if (!m->tail.inode) m->last_step = -1;
    TRY(file_tail_read(&m->tail, path, RUN_METRICS_BYTES, &v));
    if (was_summary && !m->is_summary) {
        forget(m);
        file_tail_release(&m->tail);
        TRY(file_tail_read(&m->tail, path, RUN_METRICS_BYTES, &v));
    }
    add_pending(m);
    m->is_partial = m->tail.num_skipped > 0;
    return STATUS_OK;
}

void run_metrics_release(struct run_metrics *m)
{
    forget(m);
    file_tail_release(&m->tail);
    text_release(&m->pending);
    *m = (struct run_metrics){0};
}
