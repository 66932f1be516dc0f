// SPDX-License-Identifier: Apache-2.0
#include "tensor/trace.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static void add_span(struct trace *t, struct trace_span span)
{
    if (t->count == t->capacity) {
        t->capacity = 2 * t->capacity + 256;
        t->spans = heap_grow(t->spans, t->capacity, sizeof *t->spans);
    }
    t->spans[t->count++] = span;
}

void trace_add(struct trace *t, const char *name, double begin_s)
{
    add_span(t, (struct trace_span){name, NULL, begin_s, clock_monotonic_s()});
}

void trace_add_on_track(struct trace *t, const char *track, const char *name, double begin_s,
                        double end_s)
{
    add_span(t, (struct trace_span){name, track, begin_s, end_s});
}

/* Lines (tids) of the file: 0 is the compute thread; each other one has spans of one track that do
 * not overlap. */
enum { MAX_LINES = 64 };
struct trace_lines {
    const char *track[MAX_LINES];
    double end_s[MAX_LINES];
    int count;
};

static int assign_line(struct trace_lines *l, const struct trace_span *s)
{
    int line = 1;
    if (!s->track) return 0;
    while (line < l->count &&
           (strcmp(l->track[line], s->track) != 0 || l->end_s[line] > s->begin_s))
        line++;
    if (line == MAX_LINES) line--;
    if (line == l->count) l->track[l->count++] = s->track;
    l->end_s[line] = s->end_s;
    return line;
}

static int by_begin(const void *a, const void *b)
{
    const struct trace_span *x = *(const struct trace_span *const *)a;
    const struct trace_span *y = *(const struct trace_span *const *)b;
    if (x->begin_s < y->begin_s || x->begin_s > y->begin_s) return x->begin_s < y->begin_s ? -1 : 1;
    return x->end_s > y->end_s ? -1 : x->end_s < y->end_s; /* the enclosing span first */
}

static void write_span(const struct trace_span *s, double zero, int line, struct json_writer *json)
{
    json_newline(json, 0);
    json_begin_object(json, NULL, JSON_INLINE);
    json_write_string(json, "name", s->name);
    json_write_string(json, "ph", "X");
    json_write_int(json, "pid", 0);
    json_write_int(json, "tid", line);
    json_write_format(json, "ts", "%.3f", (s->begin_s - zero) * 1e6);
    json_write_format(json, "dur", "%.3f", (s->end_s - s->begin_s) * 1e6);
    json_end_object(json);
}

static void write_line_name(const char *track, int line, struct json_writer *json)
{
    json_newline(json, 0);
    json_begin_object(json, NULL, JSON_INLINE);
    json_write_string(json, "name", "thread_name");
    json_write_string(json, "ph", "M");
    json_write_int(json, "pid", 0);
    json_write_int(json, "tid", line);
    json_begin_object(json, "args", JSON_INLINE);
    json_write_string(json, "name", track);
    json_end_object(json);
    json_end_object(json);
}

enum status trace_write(const struct trace *t, const char *path)
{
    struct text out = {0};
    struct json_writer json = {.text = &out};
    struct trace_lines lines = {.count = 1};
    const struct trace_span **order = heap((t->count + 1) * sizeof *order);
    for (size_t i = 0; i < t->count; i++) order[i] = &t->spans[i];
    qsort(order, t->count, sizeof *order, by_begin);
    json_begin_object(&json, NULL, JSON_INLINE);
    json_write_string(&json, "displayTimeUnit", "ms");
    json_begin_array(&json, "traceEvents", JSON_INLINE);
    for (size_t i = 0; i < t->count; i++)
        write_span(order[i], order[0]->begin_s, assign_line(&lines, order[i]), &json);
    for (int line = 1; line < lines.count; line++) write_line_name(lines.track[line], line, &json);
    json_newline(&json, 0);
    json_end_array(&json);
    json_end_object(&json);
    json_finish(&json);
    text_adds(&out, "\n");
    enum status st = file_write(path, out.data, out.len);
    text_release(&out);
    free(order);
    return st;
}

void trace_release(struct trace *t)
{
    free(t->spans);
    *t = (struct trace){0};
}
