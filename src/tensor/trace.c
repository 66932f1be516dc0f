// SPDX-License-Identifier: Apache-2.0
#include "tensor/trace.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>

void trace_add(struct trace *t, const char *name, double begin_s)
{
    if (t->count == t->capacity) {
        t->capacity = 2 * t->capacity + 256;
        t->spans = heap_grow(t->spans, t->capacity, sizeof *t->spans);
    }
    t->spans[t->count++] = (struct trace_span){name, begin_s, clock_monotonic_s()};
}

enum status trace_write(const struct trace *t, const char *path)
{
    struct text out = {0};
    double zero = t->count ? t->spans[0].begin_s : 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->spans[i].begin_s < zero) zero = t->spans[i].begin_s;
    text_adds(&out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_span *s = &t->spans[i];
        text_adds(&out, i ? ",\n{\"name\": " : "\n{\"name\": ");
        json_quote(&out, s->name);
        text_addf(&out, ", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f}",
                  (s->begin_s - zero) * 1e6, (s->end_s - s->begin_s) * 1e6);
    }
    text_adds(&out, "\n]}\n");
    enum status st = file_write(path, out.data, out.len);
    text_release(&out);
    return st;
}

void trace_release(struct trace *t)
{
    free(t->spans);
    *t = (struct trace){0};
}
