/* trace.h -- where the time of a step goes: spans, one after the other and inside each other; and,
 * on tracks of their own, spans of what goes on beside them.
 *
 * Units    Seconds of clock_monotonic_s; the file has microseconds, as its format wants.
 * Memory   Spans are kept until the trace is written; names are borrowed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"
#include "base/status.h"

#include <stddef.h>

struct trace {
    struct trace_span {
        const char *name, *track; /* track NULL: the computing thread */
        double begin_s, end_s;
    } * spans; /* owned; in the order they were added */
    size_t count, capacity;
};

void trace_add(struct trace *t, const char *name, double begin_s); /* to now */
/* Spans of a track may overlap: the file has as many lines for them as are needed. */
void trace_add_beside(struct trace *t, const char *track, const char *name, double begin_s,
                      double end_s);
/* Chrome's trace format, which chrome://tracing and Perfetto open; replaces the file at once. */
enum status trace_write(const struct trace *t, const char *path);
void trace_release(struct trace *t);

/* Around a piece of work; t NULL: nothing is traced, and this costs nothing. */
static inline double trace_begin(const struct trace *t) { return t ? clock_monotonic_s() : 0; }
static inline void trace_end(struct trace *t, const char *name, double begin_s)
{
    if (t) trace_add(t, name, begin_s);
}
